"""Seconds on many sizes of card: what a plan of each size says, in whatever order they are asked for."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from early_records import early_record, unlike
from examples import GIB, record_of
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import seconds_by_memory, solve, with_device_memory
from stowplan_api.record import CalibrationRecord

RECORDS = ("hard-1-keep-or-die-31gib.json", "hard-4-two-experts-48gib.json", "hard-7-unequal-pins-2-ranks.json")


@pytest.mark.parametrize("name", RECORDS)
def test_each_size_takes_what_its_plan_takes(name: str) -> None:
    record = record_of(name)
    check_sizes(record, [size * GIB for size in (48, 12, 24, 96, 20, 24, 141)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_each_size_of_a_random_record_takes_what_its_plan_takes(choose: random.Random) -> None:
    record = early_record(choose)
    if len(record.ranks) > 1 and choose.random() < 0.5:
        record = unlike(record)
    most = record.ranks[0].capacity_bytes
    check_sizes(record, [int(most * share) for share in (0.4, 0.7, 0.85, 1.0, 1.2, 3.0)])


def check_sizes(record: CalibrationRecord, sizes: list[int]) -> None:
    found = seconds_by_memory(record, sizes)
    assert list(found) == list(dict.fromkeys(sizes))
    for size, seconds in found.items():
        plan = solve(with_device_memory(record, size))
        assert (seconds is None) == (plan.cost is None)
        if seconds is not None and plan.cost is not None:
            assert seconds == pytest.approx(plan.cost.seconds, rel=3e-6)
    known = [seconds for _, seconds in sorted(found.items()) if seconds is not None]
    assert all(larger <= smaller * (1 + 2e-6) for smaller, larger in pairwise(known))


def test_no_sizes_take_nothing() -> None:
    assert seconds_by_memory(record_of(RECORDS[0]), []) == {}
