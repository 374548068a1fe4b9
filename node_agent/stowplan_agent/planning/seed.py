"""The placement to start from before anything is measured: the one with the smallest peak.

It needs no record, only what the checkpoint's headers say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.record import Component

FEWEST_SLOTS: Final = 2


def seed_placement(components: Sequence[Component], ranks: int) -> Placement:
    """Nothing stays on the device longer than it must: every component streams or comes in whole, pageable.

    A component is Layerwise with no resident layer, two slots and Forward loose weights, or Offload where it has no
    groups or its rings would take more than it weighs. A fixed component keeps its mode.
    """
    return Placement(components=tuple(_smallest(component, ranks) for component in components))


def _smallest(component: Component, ranks: int) -> ComponentPlacement:
    fixed = component.fixed.mode if component.fixed else None
    if fixed == "Resident":
        return ComponentPlacement(name=component.name, mode="Resident")
    rings = sum(FEWEST_SLOTS * max(group.layer_bytes) for group in component.groups)
    streams = component.groups and component.loose_bytes + rings < component.total_bytes()
    if fixed == "Offload" or (fixed is None and not streams):
        return ComponentPlacement(name=component.name, mode="Offload", prefetch=False, pinned_bytes=(0,) * ranks)
    groups = tuple(
        GroupPlacement(
            name=group.name,
            resident_layers=0,
            policy="Strided",
            lifetime="Forward",
            slots=FEWEST_SLOTS,
            pinned_layers=(0,) * ranks,
        )
        for group in component.groups
    )
    return ComponentPlacement(name=component.name, mode="Layerwise", loose_lifetime="Forward", groups=groups)
