"""The multiple-choice problem as a CP-SAT model: variables, and the sums that limits and objectives are made of.

One choice holds for all intervals, ranks and nodes at once. Device bytes of an interval, host and locked bytes of a
node are linear in it. An elastic option adds whole pinned bytes a rank and a load that is as long as its slowest
rank.

Times are whole units, fine enough that rounding stays far below the tolerance of times, and no finer: the solver proves
small numbers faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ortools.sat.python import cp_model

from stowplan_agent.planning.limits import activation_bytes, weight_room
from stowplan_agent.planning.options import Option
from stowplan_agent.planning.price import held_bytes
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import CalibrationRecord

Sum = Any
"""A linear expression of CP-SAT, whose stubs know too many kinds of it; or a whole number."""

PIN_STEPS: Final = 1 << 12
"""An elastic option pins a whole number of this many equal blocks (the last one may be smaller)."""
TIME_UNITS: Final = 1 << 32
"""Units of time in the slowest request: rounding is thousands of times below the tolerance of times."""
LOAD_SCALE: Final = 1 << 16
"""Rows of loads are multiplied by this, so that the seconds of a block need not be whole units."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a selection must stay within."""

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


@dataclass(slots=True)
class _Pins:
    """The pinned bytes of an elastic option."""

    option: int
    bytes: list[Sum] = field(default_factory=list)
    """One sum a rank."""
    load: Sum = 0
    """Units of time of all its loads."""


class Assembly:
    """The variables of one choice. ``pools`` are the options of each component, in the record's order."""

    def __init__(self, record: CalibrationRecord, timeline: Timeline, pools: Sequence[Sequence[Option]]) -> None:
        self.record = record
        self.timeline = timeline
        self.pools = pools
        self.model = cp_model.CpModel()
        self.ranks_of = [
            [index for index, rank in enumerate(record.ranks) if rank.node == node.name] for node in record.nodes
        ]
        slowest = [max(self._slowest(option) for option in pool) for pool in pools]
        self.unit = max(sum(slowest), 1e-9) / TIME_UNITS
        self.chosen = [
            [self.model.new_bool_var(f"{component}.{index}") for index in range(len(pool))]
            for component, pool in enumerate(pools)
        ]
        for row in self.chosen:
            self.model.add_exactly_one(row)
        self.pins = [self._elastic(component, pool) for component, pool in enumerate(pools)]

    def seconds(self) -> Sum:
        """Units of time of a request."""
        total = self._sum(lambda option: round(option.seconds / self.unit))
        return total + sum(pins.load for pins in self.pins if pins)

    def held(self, component: int, interval: int) -> Sum:
        """Device bytes of one component in one interval."""
        name = self.record.components[component].name
        return self._of(component, lambda option: held_bytes(option.layout, self.timeline, name, interval))

    def host(self, component: int, node: int) -> Sum:
        """Host bytes of one component on one node."""
        return self._of(component, lambda option: sum(option.layout.host[rank] for rank in self.ranks_of[node]))

    def locked(self, component: int, node: int) -> Sum:
        """Locked bytes of one component on one node."""
        fixed = self._of(component, lambda option: sum(option.layout.locked[rank] for rank in self.ranks_of[node]))
        pins = self.pins[component]
        return fixed + sum(pins.bytes[rank] for rank in self.ranks_of[node]) if pins else fixed

    def within(self, limits: Limits) -> None:
        """Hold every limit."""
        components = range(len(self.pools))
        for interval, room in enumerate(limits.room):
            self.model.add(sum(self.held(c, interval) for c in components) <= room)
        for node, (pinnable, host) in enumerate(zip(limits.pinnable, limits.host, strict=True)):
            self.model.add(sum(self.locked(c, node) for c in components) <= pinnable)
            self.model.add(sum(self.host(c, node) for c in components) <= host)

    def peaks(self) -> Sum:
        """Sum over ranks of the largest interval's device bytes: PLANNING.md's tie-break."""
        held = [sum(self.held(c, i) for c in range(len(self.pools))) for i in range(len(self.record.intervals))]
        total: Sum = 0
        for index, rank in enumerate(self.record.ranks):
            peak = self.model.new_int_var(0, 1 << 50, f"peak.{index}")
            for interval, weights in zip(self.record.intervals, held, strict=True):
                self.model.add(peak >= weights + activation_bytes(interval, index) + rank.outside_bytes)
            total += peak
        return total

    def all_locked(self) -> Sum:
        """Locked bytes of all nodes."""
        return sum(self.locked(c, n) for c in range(len(self.pools)) for n in range(len(self.record.nodes)))

    def entries(self, solver: cp_model.CpSolver) -> tuple[ComponentPlacement, ...]:
        """The entries that a solved model chose."""
        found = []
        for pool, row, pins in zip(self.pools, self.chosen, self.pins, strict=True):
            index = next(i for i, one in enumerate(row) if solver.boolean_value(one))
            entry = pool[index].entry
            if pins and pins.option == index:
                most = pool[index].layout.own
                pinned = tuple(min(int(solver.value(bytes_)), most) for bytes_ in pins.bytes)
                entry = entry.model_copy(update={"pinned_bytes": pinned})
            found.append(entry)
        return tuple(found)

    def _of(self, component: int, number: Any) -> Sum:
        weights = [number(option) for option in self.pools[component]]
        return cp_model.LinearExpr.weighted_sum(self.chosen[component], weights)

    def _sum(self, number: Any) -> Sum:
        return sum(self._of(component, number) for component in range(len(self.pools)))

    def _slowest(self, option: Option) -> float:
        return option.seconds + option.loads * self._copy(option.layout.own)

    def _copy(self, total: int) -> float:
        """Seconds of an unpinned copy on the slowest rank."""
        return total / min(rank.link.pageable_bytes_per_second for rank in self.record.ranks)

    def _elastic(self, component: int, pool: Sequence[Option]) -> _Pins | None:
        index = next((i for i, option in enumerate(pool) if option.elastic), None)
        if index is None:
            return None
        option, taken = pool[index], self.chosen[component][index]
        total = option.layout.own
        block = max(1, -(-total // PIN_STEPS))
        most = -(-total // block)
        pins = _Pins(index)
        pins.load = self.model.new_int_var(
            0, round(option.loads * self._copy(total) / self.unit) + 1, f"load.{component}"
        )
        for number, rank in enumerate(self.record.ranks):
            blocks = self.model.new_int_var(0, most, f"blocks.{component}.{number}")
            self.model.add(blocks <= most * taken)
            pins.bytes.append(blocks * block)
            pageable = option.loads / rank.link.pageable_bytes_per_second / self.unit * LOAD_SCALE
            saved = pageable - option.loads / rank.link.pinned_bytes_per_second / self.unit * LOAD_SCALE
            whole, step = round(total * pageable), round(saved * total / most) if most else 0
            self.model.add(LOAD_SCALE * pins.load >= whole * taken - step * blocks)
        return pins
