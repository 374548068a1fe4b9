"""The property that every random record is tried with: the solver and brute force agree."""

from __future__ import annotations

from tables import TOLERANCE, best

from stowplan_agent.planning import solve
from stowplan_api.record import CalibrationRecord


def check_agreement(record: CalibrationRecord) -> None:
    """The solver finds what brute force finds: nothing where nothing fits, else as few seconds."""
    plan, least = solve(record), best(record)
    if least is None:
        assert plan.status == "Infeasible" and plan.shortfalls
        return
    assert plan.cost is not None and plan.cost.feasible
    assert plan.cost.seconds <= least * (1 + 1.1 * TOLERANCE)
    if record.nodes[0].pinnable_bytes >= 1 << 39:  # brute force lists three choices of pinned bytes, the solver has all
        assert plan.cost.seconds >= least * (1 - TOLERANCE)
