"""The planner: where every weight of a record should live, why, and how it is known to be best.

`solve` is deterministic and pure. It prices the options of every component once (`frontier`), selects exactly
(`selection`), prices the winner again with `cost`, and explains it. Infeasible is an answer with numbers
(`shortfall`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from stowplan_agent.planning.assembly import limits_of
from stowplan_agent.planning.frontier import TOLERANCE, Frontier, between_seconds, frontiers_of, option_of
from stowplan_agent.planning.layout import entry_problems
from stowplan_agent.planning.limits import GIB
from stowplan_agent.planning.moves import moves
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.reasons import explanations
from stowplan_agent.planning.selection import SOLVER, Selected, Start, fastest, select
from stowplan_agent.planning.shortfall import changes_that_fit, shortfalls_of, smallest_peak
from stowplan_agent.planning.timeline import Timeline, timeline_of
from stowplan_api.model import ContractError
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan, Worth
from stowplan_api.record import CalibrationRecord

SPACE: Final = (
    "every placement of section 2: Resident; Offload without prefetch, pinned bytes of each rank in 4096ths of the "
    "component; Layerwise with any "
    "resident count, policy, lifetimes, 2 or 3 slots and pinned layers of each rank"
)
LEAST_SECONDS: Final = 1e-9
"""Times closer than this are equal whatever their size: the solver counts in whole units of time."""


def solve(record: CalibrationRecord, *, current: Placement | None = None) -> Plan:
    """The best placement of ``record``, or why there is none.

    With ``current``, ties prefer what is already in place, and the answer is reachable by safe moves (`moves`); it may
    then be slower than the best placement, and ``proof`` says by how much. Raises `ContractError` when ``current``
    does not belong to the record, and for a record that contradicts itself.

    The answer is exact over the space that ``proof["space"]`` states: section 2 without prefetching, and for components
    too large to list without what ``proof["leftOut"]`` names.
    """
    timeline = timeline_of(record)
    frontiers = frontiers_of(record, timeline)
    start = _start(record, frontiers, current) if current is not None else None
    between = between_seconds(timeline)
    pools = [frontier.options for frontier in frontiers]
    limits = limits_of(record)
    free = select(record, timeline, pools, limits, start=start, between=between)
    if free is None:
        return _infeasible(record, timeline, frontiers, current)
    chosen: Selected | None = free
    if current is not None and moves(record, current, free.placement) is None:
        chosen = select(record, timeline, pools, limits, start=start, ordered=True, between=between)
    if chosen is None:
        return _unreachable(record, frontiers, current, free.placement)
    priced = cost(record, chosen.placement)
    bound = chosen.bound + between
    if not priced.feasible or not abs(priced.seconds - bound) <= 4 * TOLERANCE * bound + LEAST_SECONDS:
        raise AssertionError(f"the selection promised {bound} s within limits, and its price is {priced}")
    proof = _proof(frontiers) | {"status": "OPTIMAL", "boundSeconds": bound, "tolerance": TOLERANCE}
    if chosen is not free:
        proof["withoutMovesSeconds"] = free.bound + between
    return Plan(
        id=_digest(record, current, chosen.placement),
        status="Optimal",
        placement=chosen.placement,
        cost=priced,
        proof=proof,
        explanations=explanations(record, timeline, frontiers, chosen.placement, priced.seconds),
        worth=_worth(record, timeline, frontiers, free.bound),
        moves=(moves(record, current, chosen.placement) or ()) if current is not None else (),
    )


def _start(record: CalibrationRecord, frontiers: Sequence[Frontier], current: Placement) -> Start:
    known = {component.name for component in record.components}
    for entry in current.components:
        if entry.name not in known:
            raise ContractError(
                f"the current placement has component {entry.name}, which the record lacks; "
                f"it has {', '.join(sorted(known))}"
            )
    entries = {entry.name: entry for entry in current.components}
    options = []
    for frontier in frontiers:
        found = entries.get(frontier.component.name)
        problems = entry_problems(frontier.component, found, len(record.ranks))
        if problems or found is None:
            raise ContractError(f"the current placement does not belong to this record: {problems[0]}")
        options.append(option_of(frontier.visits, found))
    return Start(tuple(options))


def _proof(frontiers: Sequence[Frontier]) -> dict[str, Any]:
    left_out = ["prefetching", *(reason for frontier in frontiers for reason in frontier.left_out)]
    return {
        "solver": SOLVER,
        "space": SPACE,
        "leftOut": left_out,
        "options": {
            frontier.component.name: {"priced": frontier.listed, "kept": len(frontier.options)}
            for frontier in frontiers
        },
    }


def _worth(record: CalibrationRecord, timeline: Timeline, frontiers: Sequence[Frontier], best: float) -> Worth:
    """Seconds that one more GiB on every card, or in every node (pins in proportion), would save; moves aside."""
    pools = [frontier.options for frontier in frontiers]
    ranks = tuple(rank.model_copy(update={"capacity_bytes": rank.capacity_bytes + GIB}) for rank in record.ranks)
    nodes = tuple(
        node.model_copy(
            update={
                "host_bytes": node.host_bytes + GIB,
                "pinnable_bytes": node.pinnable_bytes
                + (node.pinnable_bytes * GIB // node.host_bytes if node.host_bytes else 0),
            }
        )
        for node in record.nodes
    )

    def saved(changed: CalibrationRecord) -> float | None:
        seconds = fastest(changed, timeline, pools, limits_of(changed))
        if seconds is None:
            return None
        return best - seconds if best - seconds > TOLERANCE * best else 0.0

    return Worth(
        device_seconds_per_gib=saved(record.model_copy(update={"ranks": ranks})),
        host_seconds_per_gib=saved(record.model_copy(update={"nodes": nodes})),
    )


def _infeasible(
    record: CalibrationRecord, timeline: Timeline, frontiers: Sequence[Frontier], current: Placement | None
) -> Plan:
    smallest, card, within_host = smallest_peak(record, timeline, frontiers)
    return Plan(
        id=_digest(record, current, None),
        status="Infeasible",
        proof=_proof(frontiers) | {"status": "INFEASIBLE"},
        shortfalls=shortfalls_of(record, smallest),
        would_fit=changes_that_fit(record, timeline, frontiers, card, within_host),
    )


def _unreachable(
    record: CalibrationRecord, frontiers: Sequence[Frontier], current: Placement | None, best: Placement
) -> Plan:
    """The current placement is over a limit itself, and no single move mends that."""
    assert current is not None
    reason = "placements fit, but no order of moves from the current one, which is over a limit, stays within limits"
    return Plan(
        id=_digest(record, current, None),
        status="Infeasible",
        proof=_proof(frontiers) | {"status": "INFEASIBLE", "reason": reason, "unreachable": best.to_json()},
        shortfalls=shortfalls_of(record, current),
    )


def _digest(record: CalibrationRecord, current: Placement | None, placement: Placement | None) -> str:
    text = "\n".join(one.canonical() if one else "" for one in (record, current, placement))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
