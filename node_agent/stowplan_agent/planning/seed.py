"""The placement to start from before anything is measured: the one with the smallest peak that the host has room for.

It needs no record, only what the checkpoint's headers say and how much host memory there is: a pod often has less than
the model weighs, and its device more than enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.record import Component

FEWEST_SLOTS: Final = 2


def seed_placement(components: Sequence[Component], ranks: int, *, host_bytes: int | None = None) -> Placement:
    """Nothing stays on the device longer than it must: every component streams or comes in whole, pageable.

    A component is Layerwise with no resident layer, two slots and Forward loose weights, or Offload where it has no
    groups or its rings would take more than it weighs. A fixed component keeps its mode. Of what ``host_bytes`` (for
    one rank) cannot hold, layers stay on the device, the fewest bytes that it takes, layer by layer in the order of the
    components, and only then components without layers.
    """
    entries = {part.name: _smallest(part, ranks) for part in components}
    held = sum(part.total_bytes() for part in components if entries[part.name].mode != "Resident")
    over = 0 if host_bytes is None else held - host_bytes
    for part in sorted(components, key=lambda part: not part.groups):
        if over <= 0:
            break
        if entries[part.name].mode != "Resident" and part.fixed is None:
            entries[part.name], kept = _keeping(part, entries[part.name], over)
            over -= kept
    return Placement(components=tuple(entries.values()))


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


def _keeping(component: Component, entry: ComponentPlacement, nbytes: int) -> tuple[ComponentPlacement, int]:
    """The entry with at least ``nbytes`` on the device for good, if the component has as much; and how many it has."""
    if entry.groups is None or nbytes > sum(sum(group.layer_bytes) for group in component.groups):
        return ComponentPlacement(name=component.name, mode="Resident"), component.total_bytes()
    kept, groups = 0, []
    for group, placed in zip(component.groups, entry.groups, strict=True):
        count = 0
        # Leading: the bytes that are kept are those of the first layers, whatever each of them weighs.
        while kept < nbytes and count < len(group.layer_bytes):
            kept += group.layer_bytes[count]
            count += 1
        fields = {"resident_layers": count, "lifetime": "Permanent", "policy": "Leading"} if count else {}
        groups.append(placed.model_copy(update=fields))
    return entry.model_copy(update={"groups": tuple(groups)}), kept
