"""What one more GiB is worth: the same as a plan of the same record with one more GiB says."""

from __future__ import annotations

import pytest
from examples import record_of

from stowplan_agent.planning import solve, with_device_memory, with_host_memory
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord

GIB = 1 << 30
HARD = [
    "hard-1-keep-or-die-31gib.json",
    "hard-2-permanent-or-forward-80gib.json",
    "hard-4-two-experts-48gib.json",
    "hard-6-one-shot-encoder-16gib.json",
    "hard-8-no-safe-order-48gib.json",
]


def seconds_of(plan: Plan) -> float:
    assert plan.cost is not None
    return plan.cost.seconds


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("fewer", [0, 5])
def test_worth_of_a_gib(name: str, fewer: int) -> None:
    record: CalibrationRecord = record_of(name)
    device, host = record.ranks[0].capacity_bytes - fewer * GIB, record.nodes[0].host_bytes - fewer * GIB
    record = with_host_memory(with_device_memory(record, device), host)
    plan = solve(record)
    if plan.status == "Infeasible":
        assert plan.worth is None
        return
    assert plan.worth is not None
    seconds = seconds_of(plan)
    more = solve(with_device_memory(record, device + GIB))
    assert plan.worth.device_seconds_per_gib == pytest.approx(seconds - seconds_of(more), abs=3e-6 * seconds)
    # Pins in the proportion of this record: rounded down, a byte more or less.
    more = solve(with_host_memory(record, host + GIB))
    assert plan.worth.host_seconds_per_gib == pytest.approx(seconds - seconds_of(more), abs=3e-6 * seconds)
