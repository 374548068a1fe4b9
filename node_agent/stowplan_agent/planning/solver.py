"""The planner: where every weight of a record should live, why, and how it is known to be best.

`solve` is deterministic and pure. It searches for the fastest selection (`search`), breaks ties (`ties`), keeps to what
safe moves lead to (`reach`), prices the winner again with `cost`, and explains it. Infeasible is an answer with numbers
(`shortfall`).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np

from stowplan_agent.planning.bounded import TOLERANCE
from stowplan_agent.planning.branches import Branches, Searched
from stowplan_agent.planning.chains import idle_seconds
from stowplan_agent.planning.choice import best_of
from stowplan_agent.planning.limits import GIB
from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.moves import moves
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.reachable import reachable
from stowplan_agent.planning.reasons import explanations
from stowplan_agent.planning.setting import Setting, setting_of
from stowplan_agent.planning.shortfall import changes_that_fit, shortfalls_of, smallest_peak
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan, Worth
from stowplan_api.record import CalibrationRecord

SOLVER: Final = "Lagrangian bounds, exhaustive over what they leave"
SPACE: Final = (
    "every placement that there is: Resident; Offload with and without prefetch, any pinned bytes of each rank; "
    "Layerwise with any resident count, policy, lifetimes, 2 or 3 slots and pinned layers of each rank"
)
PEERS: Final = (
    "; and any number of layers sharded over the ranks; all ranks pin alike, for with peers they copy at one pace"
)
LEAST_SECONDS: Final = 1e-9
"""Times closer than this are equal whatever their size: a byte takes no less to copy."""


def solve(record: CalibrationRecord, *, current: Placement | None = None) -> Plan:
    """The best placement of ``record``, or why there is none.

    With ``current``, ties prefer what is already in place, and the answer is reachable by safe moves (`moves`); it may
    then be slower than the best placement, and ``proof`` says by how much. Raises `ContractError` when ``current``
    does not belong to the record, and for a record that contradicts itself.

    The answer is exact over the space that ``proof["space"]`` states: section 2, without what ``proof["leftOut"]``
    names, if anything.
    """
    setting = setting_of(record, current)
    branches = Branches(setting)
    more = _with_one_more(record)
    found = branches.searched(record, also=more)
    if found is None:
        return _infeasible(setting, current)
    free = bound = found.best + setting.between
    best = best_of(record, found.best_ones)
    chosen = best
    if current is not None and moves(record, current, best) is None:
        led = reachable(branches, found.plain)
        if led is None:
            return _unreachable(setting, current, best)
        chosen, bound = led[0], led[1] + setting.between
    priced = cost(record, chosen)
    if not priced.feasible or not abs(priced.seconds - bound) <= 4 * TOLERANCE * bound + LEAST_SECONDS:
        raise AssertionError(f"the search promised {bound} s within limits, and its price is {priced}")
    proof = _proof(setting, free) | {"status": "OPTIMAL", "boundSeconds": bound, "tolerance": TOLERANCE}
    if chosen is not best:
        proof["withoutMovesSeconds"] = free
    return Plan(
        id=_digest(record, current, chosen),
        status="Optimal",
        placement=chosen,
        cost=priced,
        proof=proof,
        worth=_worth(branches, found, free, *more),
        explanations=explanations(setting, chosen, priced.seconds),
        moves=(moves(record, current, chosen) or ()) if current is not None else (),
    )


def _proof(setting: Setting, seconds: float = np.inf) -> dict[str, Any]:
    """What was proven; of a plan that takes ``seconds``, with nothing left out if compute alone takes as long."""
    compute = sum(course.share * idle_seconds(stay) for course in setting.timeline.courses for stay in course.stays)
    reasons = sorted({reason for space in setting.spaces for reason in space.left_out})
    if seconds <= compute * (1 + TOLERANCE):
        reasons = []
    return {
        "solver": SOLVER,
        "space": SPACE + PEERS if have_peers(setting.record) else SPACE,
        "leftOut": reasons,
        "options": {
            space.component.name: {"bounded": space.listed, "priced": space.pricer.simulated}
            for space in setting.spaces
        },
    }


def _with_one_more(record: CalibrationRecord) -> tuple[CalibrationRecord, CalibrationRecord]:
    """The record with one more GiB on every card, and in every node, its pins in proportion."""
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
    return record.model_copy(update={"ranks": ranks}), record.model_copy(update={"nodes": nodes})


def _worth(
    branches: Branches, near: Searched, best: float, device: CalibrationRecord, host: CalibrationRecord
) -> Worth:
    """Seconds that one more GiB on every card, or in every node, would save; moves aside."""
    setting = branches.setting
    floor = setting.between + sum(space.least[0] for space in setting.spaces)
    if best <= floor * (1 + TOLERANCE):
        return Worth(device_seconds_per_gib=0.0, host_seconds_per_gib=0.0)

    more = setting.frame_with(host)
    plenty = not (setting.frame.host_scarce or setting.frame.pins_scarce or more.host_scarce or more.pins_scarce)

    def saved(changed: CalibrationRecord) -> float | None:
        enough = best * (1 - 2 * TOLERANCE) - setting.between
        found = branches.searched(changed, near, enough)
        if found is None:
            return None
        return best - found.best - setting.between if found.best < enough else 0.0

    return Worth(
        device_seconds_per_gib=saved(device),
        host_seconds_per_gib=0.0 if plenty else saved(host),
    )


def _infeasible(setting: Setting, current: Placement | None) -> Plan:
    smallest, card, within_host = smallest_peak(setting)
    return Plan(
        id=_digest(setting.record, current, None),
        status="Infeasible",
        proof=_proof(setting) | {"status": "INFEASIBLE"},
        shortfalls=shortfalls_of(setting.record, smallest),
        would_fit=changes_that_fit(setting, card, within_host),
    )


def _unreachable(setting: Setting, current: Placement | None, best: Placement) -> Plan:
    """The current placement is over a limit itself, and no single move mends that."""
    assert current is not None
    reason = "placements fit, but no order of moves from the current one, which is over a limit, stays within limits"
    return Plan(
        id=_digest(setting.record, current, None),
        status="Infeasible",
        proof=_proof(setting) | {"status": "INFEASIBLE", "reason": reason, "unreachable": best.to_json()},
        shortfalls=shortfalls_of(setting.record, current),
    )


def _digest(record: CalibrationRecord, current: Placement | None, placement: Placement | None) -> str:
    text = "\n".join(one.canonical() if one else "" for one in (record, current, placement))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
