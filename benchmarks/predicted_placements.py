"""Placements on which predictions are tried: the planner's own, and some that it would not choose.

Between them they have what a price is made of: rings of two and three slots, both policies, sets that stay and sets
that go, components that visit, early and not, and host copies that are locked, half locked and not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.target import with_whole_pins
from stowplan_agent.planning import seed_placement, solve
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.record import CalibrationRecord, Component


def wanted(record: CalibrationRecord, cards: tuple[int, ...], card: int) -> Iterator[tuple[str, Placement]]:
    """Names and placements to try on one of ``cards``, which ascend; the record is that of the card."""
    parts = record.components
    plan = solve(record)
    if plan.placement is not None:
        yield "plan", with_whole_pins(record, plan.placement)
    first, second, third, *_ = cards
    if card == first:
        yield "smallest", with_pins(seed_placement(parts, ranks=1), parts, record.nodes[0].pinnable_bytes)
        yield "streamed, pinned", Placement(components=tuple(layerwise(part, 0.0) for part in parts))
    elif card == second:
        entries = tuple(layerwise(part, 0.25, policy="Leading", lifetime="Forward", slots=3) for part in parts)
        yield "a quarter, leading, forward", Placement(components=entries)
    elif card == third:
        pins = {part.name: part.total_bytes() if index % 2 else 0 for index, part in enumerate(parts)}
        entries = tuple(offload(part, pins[part.name], prefetch=True) for part in parts)
        yield "visiting, some pinned", Placement(components=entries)
        yield "pageable", seed_placement(parts, ranks=1)
        yield "half, half pinned", Placement(components=tuple(layerwise(part, 0.5, pinned=0.5) for part in parts))
    elif card == cards[-1]:
        yield "most, three slots", Placement(components=tuple(layerwise(part, 0.75, slots=3) for part in parts))
        yield "resident", Placement(components=tuple(ComponentPlacement(name=p.name, mode="Resident") for p in parts))


def offload(part: Component, pinned: int, *, prefetch: bool = False) -> ComponentPlacement:
    """Off the device but in its own intervals."""
    return ComponentPlacement(name=part.name, mode="Offload", prefetch=prefetch, pinned_bytes=(pinned,))


def layerwise(
    part: Component, share: float, *, pinned: float = 1.0, lifetime: Any = "Permanent", **fields: Any
) -> ComponentPlacement:
    """A share of each group's layers resident, a share of the rest pinned; Offload, pinned, where there is no group."""
    if not part.groups:
        return offload(part, part.total_bytes())
    groups = []
    for group in part.groups:
        kept = int(share * len(group.layer_bytes))
        copied = len(group.layer_bytes) - (0 if lifetime == "Forward" else kept)
        groups.append(
            GroupPlacement(
                name=group.name,
                resident_layers=kept,
                lifetime=lifetime,
                pinned_layers=(int(pinned * copied),),
                **({"slots": 2} | fields),
            )
        )
    return ComponentPlacement(name=part.name, mode="Layerwise", loose_lifetime=lifetime, groups=tuple(groups))
