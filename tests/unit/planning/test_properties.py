"""What must hold whatever the record: more never hurts, and units of time do not matter."""

from __future__ import annotations

import random

from examples import small_record
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import solve, with_device_memory, with_host_memory
from stowplan_api.record import CalibrationRecord

chance = st.randoms(use_true_random=False)
rule = settings(max_examples=60, deadline=None, derandomize=True)
ROUNDING = 1 + 2.2e-6
"""Two plans may each be within the tolerance of times of their best."""


def seconds(record: CalibrationRecord) -> float:
    plan = solve(record)
    return plan.cost.seconds if plan.cost else float("inf")


@rule
@given(chance)
def test_more_device_memory_is_never_slower(choose: random.Random) -> None:
    record = small_record(choose)
    capacity = record.ranks[0].capacity_bytes
    assert seconds(with_device_memory(record, int(capacity * choose.uniform(1, 1.5)))) <= seconds(record) * ROUNDING


@rule
@given(chance)
def test_more_host_memory_is_never_slower(choose: random.Random) -> None:
    record = small_record(choose)
    more = with_host_memory(record, int(record.nodes[0].host_bytes * choose.uniform(1, 1.5)) + 2)
    assert more.nodes[0].pinnable_bytes >= record.nodes[0].pinnable_bytes
    assert seconds(more) <= seconds(record) * ROUNDING


@rule
@given(chance)
def test_a_faster_link_is_never_worse(choose: random.Random) -> None:
    record = small_record(choose)
    faster = choose.choice(
        [{"pinned_bytes_per_second": 50e9}, {"pageable_bytes_per_second": 24e9}, {"latency_seconds": 0.0}]
    )
    ranks = tuple(rank.model_copy(update={"link": rank.link.model_copy(update=faster)}) for rank in record.ranks)
    assert seconds(record.model_copy(update={"ranks": ranks})) <= seconds(record) * ROUNDING


@rule
@given(chance)
def test_a_further_constraint_is_never_better(choose: random.Random) -> None:
    record = small_record(choose)
    mode = choose.choice(["Resident", "Offload"])
    data = record.to_json()
    choose.choice(data["components"])["fixed"] = {"mode": mode, "reason": "a test"}
    assert seconds(record) <= seconds(CalibrationRecord.from_json(data)) * ROUNDING


@rule
@given(chance, st.sampled_from([2.0**-7, 2.0**5]))
def test_scaling_all_seconds_changes_no_placement(choose: random.Random, factor: float) -> None:
    """By powers of two, so that nothing is rounded differently."""
    record = small_record(choose)
    data = record.to_json()
    for run in (run for interval in data["intervals"] for run in interval["runs"]):
        run["looseSeconds"] *= factor
        run["layerSeconds"] = {name: [one * factor for one in each] for name, each in run["layerSeconds"].items()}
    for rank in data["ranks"]:
        rank["link"]["latencySeconds"] *= factor
        rank["link"]["pinnedBytesPerSecond"] /= factor
        rank["link"]["pageableBytesPerSecond"] /= factor
    assert solve(CalibrationRecord.from_json(data)).placement == solve(record).placement


@rule
@given(chance)
def test_the_same_record_gives_the_same_bytes(choose: random.Random) -> None:
    record = small_record(choose)
    assert solve(record).canonical() == solve(CalibrationRecord.from_json(record.to_json())).canonical()
