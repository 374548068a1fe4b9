"""When nothing fits: where it fails, by how many bytes, and the smallest change that would make it fit.

An infeasible record is an answer with numbers, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ortools.sat.python import cp_model

from stowplan_agent.planning.assembly import Assembly, Limits, Sum, limits_of
from stowplan_agent.planning.frontier import Frontier
from stowplan_agent.planning.limits import LEAST_RESERVE, activation_bytes, reserve_divisor
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.selection import settled
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import Placement
from stowplan_api.plan import Change, Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord

UNLIMITED: Final = 1 << 50
"""More bytes than any machine has, and few enough for the solver's sums."""


def smallest_peak(
    record: CalibrationRecord, timeline: Timeline, frontiers: Sequence[Frontier]
) -> tuple[Placement, int, bool]:
    """The placement that needs the smallest card, that card's bytes, and whether it is within the limits of host
    memory.

    Host limits are kept if that is possible at all.
    """
    limits = limits_of(record)
    for within_host in (True, False):
        host = limits.host if within_host else (UNLIMITED,) * len(limits.host)
        anywhere = Limits((UNLIMITED,) * len(limits.room), limits.pinnable, host)
        found = _least(record, timeline, frontiers, anywhere, lambda assembly: _card(assembly, record))
        if found is not None:
            return found[0], found[1], within_host
    raise AssertionError("with unlimited memory the options of every component are allowed")


def shortfalls_of(record: CalibrationRecord, placement: Placement) -> tuple[Violation, ...]:
    """What the placement breaks, the largest shortage first."""
    return tuple(sorted(cost(record, placement).violations, key=lambda one: -one.short_bytes))


def changes_that_fit(
    record: CalibrationRecord, timeline: Timeline, frontiers: Sequence[Frontier], card: int, within_host: bool
) -> tuple[Change, ...]:
    """The smallest device memory, host memory or activations with which a placement exists, each on its own.

    ``card`` is the smallest card, ``within_host`` whether it needs no more host memory than there is.
    """
    changes = []
    also = "" if within_host else ", and more host memory as well"
    changes.append(
        Change(
            what="deviceMemory",
            needed_bytes=card,
            message=f"{for_people(card)} ({card} bytes) of device memory a rank for this shape{also}",
        )
    )
    limits = limits_of(record)
    host = _least(
        record,
        timeline,
        frontiers,
        replace(limits, host=(UNLIMITED,) * len(limits.host)),
        lambda assembly: _host(assembly, record),
    )
    if host is not None:
        message = f"{for_people(host[1])} ({host[1]} bytes) of host memory a node for this shape on this card"
        changes.append(Change(what="hostMemory", needed_bytes=host[1], message=message))
    elif within_host and (shape := _shape(record, card)) is not None:
        changes.append(shape)
    return tuple(changes)


def _shape(record: CalibrationRecord, card: int) -> Change | None:
    """A smaller shape, unless the card is too small even for one without activations."""
    short = card - min(rank.capacity_bytes for rank in record.ranks)
    largest = max(
        (activation_bytes(interval, rank), index)
        for index, interval in enumerate(record.intervals)
        for rank in range(len(record.ranks))
    )
    if short >= largest[0]:
        return None
    interval = record.intervals[largest[1]]
    name = f"{interval.component} {interval.entry}" if interval.component else interval.entry
    message = (
        f"a smaller shape: the card is {for_people(short)} too small, and the largest activations are "
        f"{for_people(largest[0])}, in {name}"
    )
    return Change(what="shape", needed_bytes=None, message=message)


def _least(
    record: CalibrationRecord,
    timeline: Timeline,
    frontiers: Sequence[Frontier],
    limits: Limits,
    objective: Callable[[Assembly], Sum],
) -> tuple[Placement, int] | None:
    assembly = Assembly(record, timeline, [frontier.options for frontier in frontiers])
    assembly.within(limits)
    goal = objective(assembly)
    solver: cp_model.CpSolver | None = settled(assembly, [goal, assembly.seconds()])
    if solver is None:
        return None
    return Placement(components=assembly.entries(solver)), int(solver.value(goal))


def _card(assembly: Assembly, record: CalibrationRecord) -> Sum:
    """Capacity of the smallest card that holds the selection and its reserve, on every rank.

    A reserve of the part 1/d of the capacity, rounded up, fits if and only if d times the need is at most d - 1 times
    the capacity.
    """
    card = assembly.model.new_int_var(0, UNLIMITED, "card")
    for index, interval in enumerate(record.intervals):
        weights = sum(assembly.held(c, index) for c in range(len(assembly.pools)))
        for position, rank in enumerate(record.ranks):
            need = weights + rank.outside_bytes + activation_bytes(interval, position)
            if rank.reserve_bytes is not None:
                assembly.model.add(card >= need + rank.reserve_bytes)
                continue
            divisor = reserve_divisor(record, interval)
            assembly.model.add(card >= need + LEAST_RESERVE)
            assembly.model.add((divisor - 1) * card >= divisor * need)
    return card


def _host(assembly: Assembly, record: CalibrationRecord) -> Sum:
    """Host memory that every node needs."""
    host = assembly.model.new_int_var(0, UNLIMITED, "host")
    for node in range(len(record.nodes)):
        assembly.model.add(host >= sum(assembly.host(c, node) for c in range(len(assembly.pools))))
    return host
