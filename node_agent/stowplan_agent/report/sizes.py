"""Which sizes of device memory are worth asking about: where a record begins to fit, and where all is resident."""

from __future__ import annotations

from typing import Final

from stowplan_agent.estimate.cards import CARDS
from stowplan_agent.planning import cost, solve, with_device_memory
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord, Component

GIB: Final = 1 << 30
LARGEST: Final = 1 << 46
"""Bytes; more than the records of the contract can ask for on one card."""


def default_range(record: CalibrationRecord) -> tuple[int, int]:
    """From just below the smallest size that fits to the first card on which everything is resident."""
    smallest = smallest_size(record)
    full = full_size(record)
    start = smallest if smallest is not None else full
    low = (start - GIB // 4) // GIB * GIB
    enough = [card.memory_bytes for card in CARDS if card.memory_bytes >= full]
    return (low if low > 0 else max(start // 2, 1)), min(enough, default=full + GIB)


def even_sizes(least: int, most: int, count: int) -> tuple[int, ...]:
    """``count`` sizes from ``least`` to ``most`` bytes, evenly spread, both ends included."""
    return tuple(least + (most - least) * step // (count - 1) for step in range(count))


def smallest_size(record: CalibrationRecord) -> int | None:
    """Bytes of the smallest device on which anything fits, or None where more device memory alone does not help."""
    nothing = solve(with_device_memory(record, 0))
    for change in nothing.would_fit:
        if change.what == "deviceMemory" and change.also_host_bytes is None:
            return change.needed_bytes
    return None


def full_size(record: CalibrationRecord) -> int:
    """The fewest bytes of device memory with which all components are Resident, but for those fixed elsewhere."""
    ranks = len(record.ranks)
    entries = tuple(_whole(component, ranks) for component in record.components)
    placement = Placement(components=entries)

    def fits(size: int) -> bool:
        found = cost(with_device_memory(record, size), placement).violations
        return not any(one.constraint == "device" for one in found)

    low, high = 0, LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _whole(component: Component, ranks: int) -> ComponentPlacement:
    if component.fixed is not None and component.fixed.mode == "Offload":
        return ComponentPlacement(name=component.name, mode="Offload", prefetch=False, pinned_bytes=(0,) * ranks)
    return ComponentPlacement(name=component.name, mode="Resident")
