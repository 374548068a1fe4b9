"""The limits of a record, and the same record on other hardware.

A record answers for a card that is not here: `with_device_memory` and `with_host_memory` are the two flags of the
command line (PLANNING.md, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stowplan_api.record import CalibrationRecord, Interval, Rank

Ints = npt.NDArray[np.int64]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
LEAST_RESERVE: Final = 512 * MIB
"""The least reserve: allocator rounding and fragmentation do not shrink with the card (PLANNING.md, small print)."""
MEASURED_DIVISOR: Final = 50
"""2 % of capacity where activations were measured on their own shape."""
UNSURE_DIVISOR: Final = 10
"""10 % of capacity where they were extrapolated, or where two probes disagreed."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """What a plan leaves free in one interval: a part of the card, and never less than so many bytes."""

    divisor: int | None
    """One over this is the part of the capacity; None where bytes were stated, whatever the card."""
    least: int

    def of(self, capacity: int) -> int:
        """Bytes that stay free on a card of ``capacity`` bytes."""
        return max(-(-capacity // self.divisor), self.least) if self.divisor else self.least

    def card_with(self, used: Ints) -> Ints:
        """Bytes of the smallest card with room for ``used`` bytes beside the reserve, the inverse of `of`:
        ``capacity - ceil(capacity / divisor) >= used`` is ``capacity >= used * divisor / (divisor - 1)``."""
        if not self.divisor:
            return used + self.least
        return np.maximum(-(-used * self.divisor // (self.divisor - 1)), used + self.least)


def reserve_of(record: CalibrationRecord, interval: Interval, rank: Rank) -> Reserve:
    """The rule of ``interval``. ``reserveBytes`` of the rank replaces it; those of the interval only lift it."""
    if rank.reserve_bytes is not None:
        return Reserve(None, rank.reserve_bytes)
    unsure = record.extrapolated or interval.adaptive
    return Reserve(UNSURE_DIVISOR if unsure else MEASURED_DIVISOR, max(LEAST_RESERVE, interval.reserve_bytes))


def reserve_bytes(record: CalibrationRecord, interval: Interval, rank: Rank) -> int:
    """Bytes of ``rank`` that a plan leaves free in ``interval``."""
    return reserve_of(record, interval, rank).of(rank.capacity_bytes)


def with_default_reserves(record: CalibrationRecord) -> CalibrationRecord:
    """The record without what its allocator took beside activations: what fits then may be slower than predicted."""
    intervals = tuple(interval.model_copy(update={"reserve_bytes": 0}) for interval in record.intervals)
    return record.model_copy(update={"intervals": intervals})


def activation_bytes(interval: Interval, rank: int) -> int:
    """Largest activations of the interval on the rank with index ``rank``, over its runs that have passes."""
    return max((run.activation_bytes[rank] for run in interval.runs if run.passes), default=0)


def weight_room(record: CalibrationRecord) -> tuple[tuple[int, ...], ...]:
    """Interval by rank: bytes that weights may take. Negative where not even activations fit."""
    return tuple(
        tuple(
            rank.capacity_bytes
            - reserve_bytes(record, interval, rank)
            - rank.outside_bytes
            - activation_bytes(interval, index)
            for index, rank in enumerate(record.ranks)
        )
        for interval in record.intervals
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a placement must stay within."""

    room: tuple[int, ...]
    """Bytes of weights that fit each interval, on the tightest rank."""
    pinnable: tuple[int, ...]
    """By node, in the record's order."""
    host: tuple[int, ...]


def limits_of(record: CalibrationRecord) -> Limits:
    """The limits of a record."""
    return Limits(
        room=tuple(min(ranks) for ranks in weight_room(record)),
        pinnable=tuple(node.pinnable_bytes for node in record.nodes),
        host=tuple(node.host_bytes for node in record.nodes),
    )


def with_device_memory(record: CalibrationRecord, capacity: int) -> CalibrationRecord:
    """The record on cards of which this process may use ``capacity`` bytes each. Reserves follow."""
    ranks = tuple(rank.model_copy(update={"capacity_bytes": capacity}) for rank in record.ranks)
    return record.model_copy(update={"ranks": ranks})


def with_host_memory(record: CalibrationRecord, capacity: int) -> CalibrationRecord:
    """The record on nodes of ``capacity`` bytes of host memory each.

    ``pinnableBytes`` scales in the record's own proportion, rounded down; a node that had no host memory pins nothing.
    """
    nodes = tuple(
        node.model_copy(
            update={
                "host_bytes": capacity,
                "pinnable_bytes": node.pinnable_bytes * capacity // node.host_bytes if node.host_bytes else 0,
            }
        )
        for node in record.nodes
    )
    return record.model_copy(update={"nodes": nodes})
