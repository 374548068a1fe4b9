"""One exact choice: an option for every component, over all limits and ties at once.

The objectives of section 4 are solved one after the other by CP-SAT, each under the optimum of those before it:
seconds, then (among what is within the tolerance) components changed, device bytes, locked bytes, and last the
canonical text.

Same input, same answer: one worker, a fixed seed, no time limit. Options that cannot be part of a selection within
limits, or as fast as the best, are left out before the solver sees them; that loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import ortools
from ortools.sat.python import cp_model

from stowplan_agent.planning.assembly import Assembly, Limits, Sum
from stowplan_agent.planning.frontier import TOLERANCE
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.options import Option, same_bytes
from stowplan_agent.planning.order import add_order
from stowplan_agent.planning.price import held_bytes
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord

SAMPLE: Final = 300
"""Options of a component from which a first selection is sampled."""
SOLVER: Final = f"OR-Tools CP-SAT {ortools.__version__}"


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected placement, and what the solver proved about its seconds."""

    placement: Placement
    bound: float
    """Seconds that no selection beats, without what runs between components."""


@dataclass(frozen=True, slots=True)
class Start:
    """The current placement, where there is one."""

    options: tuple[Option, ...]
    """The current entry of each component."""

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Its layouts."""
        return tuple(option.layout for option in self.options)


def fastest(
    record: CalibrationRecord, timeline: Timeline, pools: Sequence[Sequence[Option]], limits: Limits
) -> float | None:
    """Seconds of the best selection, ties aside; None when none is within ``limits``."""
    fitting = _that_fit(record, timeline, pools, limits)
    if not all(fitting):
        return None
    stage = _Stage(record, timeline, fitting, limits, None)
    units = stage.minimise(stage.assembly.seconds())
    return None if units is None else units * stage.assembly.unit


def select(
    record: CalibrationRecord,
    timeline: Timeline,
    pools: Sequence[Sequence[Option]],
    limits: Limits,
    *,
    start: Start | None = None,
    ordered: bool = False,
    between: float = 0.0,
) -> Selected | None:
    """The best selection from ``pools`` (one list a component), or None when none is within ``limits``.

    ``start`` counts changes; with ``ordered`` there must also be a safe order of moves from it. ``between`` are the
    seconds of a request in which no component runs: they are part of what the tolerance of times is a share of.
    """
    pools = [_with_current(pool, start, c, record) for c, pool in enumerate(pools)]
    pools = _that_fit(record, timeline, pools, limits)
    if not all(pools):
        return None
    ordered_from = start if ordered else None
    ceiling = _ceiling(record, timeline, pools, limits, start, ordered_from)
    if ceiling is not None:
        pools = _fast_enough(pools, _still_equal(ceiling, between), record)
    coarse = _Stage(record, timeline, pools, limits, ordered_from)
    units = coarse.minimise(coarse.assembly.seconds())
    if units is None:
        return None
    # Units are shares of the slowest request; without the slow options they are finer.
    rounding = len(pools) * coarse.assembly.unit
    pools = _fast_enough(pools, _still_equal(units * coarse.assembly.unit, between) + 2 * rounding, record)
    stage = _Stage(record, timeline, pools, limits, ordered_from)
    units = stage.minimise(stage.assembly.seconds())
    if units is None:
        raise RuntimeError("a model that had a solution lost it with options that are not part of it")
    best = units * stage.assembly.unit
    stage.assembly.model.add(stage.assembly.seconds() <= int(_still_equal(best, between) / stage.assembly.unit))
    if start is not None:
        stage.settle(stage.changed(start))
    stage.settle(stage.assembly.peaks())
    stage.settle(stage.assembly.all_locked())
    for pool, row in zip(pools, stage.assembly.chosen, strict=True):
        if len(pool) > 1:
            rank = {id(option): place for place, option in enumerate(sorted(pool, key=lambda one: one.text))}
            stage.settle(cp_model.LinearExpr.weighted_sum(row, [rank[id(option)] for option in pool]))
    return Selected(Placement(components=stage.entries()), best)


def _ceiling(
    record: CalibrationRecord,
    timeline: Timeline,
    pools: Sequence[Sequence[Option]],
    limits: Limits,
    start: Start | None,
    ordered_from: Start | None,
) -> float | None:
    """Seconds of some selection within limits, found cheaply: what is slower on its own cannot be part of the best.

    The current placement is one if it fits; else the best of a sample, where the pools are long.
    """
    if start is not None and all(now in pool for now, pool in zip(start.options, pools, strict=True)):
        held = _Stage(record, timeline, [[now] for now in start.options], limits, None)
        if held.minimise(held.assembly.seconds()) is not None:
            return sum(now.seconds for now in start.options)
    if max(map(len, pools)) <= SAMPLE:
        return None
    sample = [sorted(pool, key=lambda one: one.seconds)[:: -(-len(pool) // SAMPLE)] for pool in pools]
    stage = _Stage(record, timeline, sample, limits, ordered_from)
    units = stage.minimise(stage.assembly.seconds())
    return None if units is None else (units + len(pools)) * stage.assembly.unit


def _still_equal(best: float, between: float) -> float:
    """The most seconds that count as equal to ``best``; both without the seconds between components."""
    return (best + between) * (1 + TOLERANCE) - between


class _Stage:
    """A model that is minimised several times, for one objective after the other."""

    def __init__(
        self,
        record: CalibrationRecord,
        timeline: Timeline,
        pools: Sequence[Sequence[Option]],
        limits: Limits,
        start: Start | None,
    ) -> None:
        self.assembly = Assembly(record, timeline, pools)
        self.assembly.within(limits)
        if start is not None:
            add_order(self.assembly, start.layouts, limits)
        self.solver = _solver()

    def minimise(self, objective: Sum) -> int | None:
        """The least value of ``objective``, proven; None when the model has no solution."""
        return _minimise(self.assembly, self.solver, objective)

    def settle(self, objective: Sum) -> None:
        """Minimise and hold the optimum for all that follows."""
        least = self.minimise(objective)
        if least is None:
            raise RuntimeError("a model that had a solution lost it by holding its optimum")
        self.assembly.model.add(objective <= least)

    def changed(self, start: Start) -> Sum:
        """Components that leave their current entry."""
        total: Sum = 0
        for pool, row, now in zip(self.assembly.pools, self.assembly.chosen, start.options, strict=True):
            total += sum(one for option, one in zip(pool, row, strict=True) if option is not now)
        return total

    def entries(self) -> tuple[ComponentPlacement, ...]:
        """The entries of the last solution."""
        return self.assembly.entries(self.solver)


def settled(assembly: Assembly, objectives: Sequence[Sum]) -> cp_model.CpSolver | None:
    """The solver after minimising ``objectives`` one under the other; None when there is no solution."""
    solver = _solver()
    for objective in objectives:
        least = _minimise(assembly, solver, objective)
        if least is None:
            return None
        assembly.model.add(objective <= least)
    return solver


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # All rows in the linear relaxation: its bound is what proves these problems (0.01 s instead of minutes).
    solver.parameters.linearization_level = 2
    return solver


def _minimise(assembly: Assembly, solver: cp_model.CpSolver, objective: Sum) -> int | None:
    model = assembly.model
    model.minimize(objective)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise RuntimeError(f"{SOLVER} stopped with {solver.status_name(status)}: {model.validate()}")
    model.clear_hints()
    for index in range(len(model.proto.variables)):
        variable = model.get_int_var_from_proto_index(index)
        model.add_hint(variable, solver.value(variable))
    return int(solver.value(objective))


def _with_current(pool: Sequence[Option], start: Start | None, index: int, record: CalibrationRecord) -> list[Option]:
    """The pool with the current entry in place of any that places the same bytes."""
    if start is None:
        return list(pool)
    now, component = start.options[index], record.components[index]
    others = [one for one in pool if one.elastic or not same_bytes(one.entry, now.entry, component)]
    return [now, *others]


def _that_fit(
    record: CalibrationRecord, timeline: Timeline, pools: Sequence[Sequence[Option]], limits: Limits
) -> list[list[Option]]:
    """Only options that fit beside the smallest of all others, interval by interval."""
    names = [component.name for component in record.components]
    intervals = range(len(record.intervals))

    def held(component: int, option: Option, interval: int) -> int:
        return held_bytes(option.layout, timeline, names[component], interval)

    least = [[min(held(c, one, i) for one in pool) for i in intervals] for c, pool in enumerate(pools)]
    spare = [limits.room[i] - sum(row[i] for row in least) for i in intervals]
    return [
        [one for one in pool if all(held(c, one, i) - least[c][i] <= spare[i] for i in intervals)]
        for c, pool in enumerate(pools)
    ]


def _fast_enough(pools: Sequence[Sequence[Option]], most: float, record: CalibrationRecord) -> list[list[Option]]:
    """Only options that can be part of a selection of at most ``most`` seconds (and a little, for rounding)."""
    rate = max(max(r.link.pinned_bytes_per_second, r.link.pageable_bytes_per_second) for r in record.ranks)

    def least(option: Option) -> float:
        return option.seconds + option.loads * option.layout.own / rate

    fastest = [min(map(least, pool)) for pool in pools]
    spare = most * (1 + 1e-9) - sum(fastest)
    return [
        [one for one in pool if least(one) - quickest <= spare] for pool, quickest in zip(pools, fastest, strict=True)
    ]
