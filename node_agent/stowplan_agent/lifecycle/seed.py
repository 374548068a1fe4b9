"""The seed placement with what the host may lock, locked; and how much of what streams comes from there.

A request that streams from pageable memory keeps the host busy copying, so that it launches kernels late: measured on
an H200, layers of a text encoder then seemed to take three times their seconds. From locked memory the host runs ahead,
and what the probe measures is the device. Locking changes no device byte, so the seed keeps its smallest peak.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import Component


def with_pins(seed: Placement, parts: Sequence[Component], pinnable_bytes: int, *, ranks: int = 1) -> Placement:
    """The seed placement with host copies locked, at most ``pinnable_bytes`` of them; ranks lock one copy together.

    What streams comes first, as it passes again and again, in the order of the components; then what visits, as a
    whole or not at all.
    """
    known = {part.name: part for part in parts}
    entries = {entry.name: entry for entry in seed.components}
    left = pinnable_bytes
    for entry in sorted(seed.components, key=lambda entry: entry.mode != "Layerwise"):
        entries[entry.name], taken = _pinned(entry, known[entry.name], left, ranks)
        left -= taken
    return Placement(components=tuple(entries.values()))


def pinned_share(entry: ComponentPlacement, part: Component) -> float:
    """Which share of the layers that a component streams comes from locked memory."""
    layers = {group.name: len(group.layer_bytes) for group in part.groups}
    streamed = locked = 0
    for placed in entry.groups or ():
        count = layers[placed.name] - placed.resident_layers
        streamed += count
        locked += min(count, max(placed.pinned_layers or (0,)))
    return locked / streamed if streamed else 0.0


def _pinned(entry: ComponentPlacement, part: Component, left: int, ranks: int) -> tuple[ComponentPlacement, int]:
    if part.fixed is not None:
        return entry, 0
    if entry.mode == "Offload":
        taken = part.total_bytes() if part.total_bytes() <= left else 0
        return entry.model_copy(update={"pinned_bytes": (taken,) * ranks}), taken
    groups, taken = [], 0
    layers = {group.name: group.layer_bytes for group in part.groups}
    for placed in entry.groups or ():
        count = 0
        # Streamed layers are locked in running order; those that a seed keeps, for want of host memory, are the first.
        for nbytes in layers[placed.name][placed.resident_layers :]:
            if taken + nbytes > left:
                break
            taken, count = taken + nbytes, count + 1
        groups.append(placed.model_copy(update={"pinned_layers": (count,) * ranks}))
    return entry.model_copy(update={"groups": tuple(groups)} if groups else {}), taken
