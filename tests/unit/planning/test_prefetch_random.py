"""Prefetches on hundreds of random small records: brute force over all of section 2 agrees, ties and moves too."""

from __future__ import annotations

import random

import pytest
from agreement import check_agreement
from brute import placements
from early_records import early_record, unlike
from examples import placed
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import TOLERANCE, best, best_reachable
from tied import least_of_ties, peak_of

from stowplan_agent.planning import moves, solve
from stowplan_api.record import CalibrationRecord

chance = st.randoms(use_true_random=False)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(chance)
def test_agrees_with_brute_force(choose: random.Random) -> None:
    check_agreement(early_record(choose))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(chance)
def test_nothing_better_is_left_out_unsaid_on_ranks_of_unlike_links(choose: random.Random) -> None:
    record = unlike(early_record(choose, ranks=2, count=2, tight=choose.choice(["pins", "all"])))
    plan, least = solve(record), best(record)
    said = any("not at all" in reason for reason in plan.proof["leftOut"])
    assert (plan.cost is None) == (least is None)
    if plan.cost is not None and least is not None and not said:
        assert plan.cost.seconds <= least * (1 + 1.1 * TOLERANCE)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(chance)
def test_ties_go_as_brute_force_says(choose: random.Random) -> None:
    record = early_record(choose)
    plan, least = solve(record), best(record)
    if plan.cost is None or least is None or plan.cost.seconds < least * (1 - 1e-9):
        return
    prefetches = sum(bool(entry.prefetch) for entry in placed(plan).components)
    mine = (0, prefetches, peak_of(plan.cost), sum(plan.cost.locked_bytes.values()) - len(record.ranks))
    assert mine <= (least_of_ties(record) or mine)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(chance)
def test_agrees_with_brute_force_where_moves_bind(choose: random.Random) -> None:
    check_moves(early_record(choose, ranks=1, count=2, tight="moves"), choose)


@pytest.mark.parametrize("seed", [70, 659, 667])
def test_agrees_with_brute_force_where_only_the_order_of_moves_forbids_the_best(seed: int) -> None:
    """From the fullest placement that prefetches something."""
    record = early_record(random.Random(seed), ranks=1, count=2, tight="moves")
    assert check_moves(record, None)


def check_moves(record: CalibrationRecord, choose: random.Random | None) -> bool:
    """Whether the best placement could not be reached: from any that prefetches or that does not, or the fullest."""
    feasible = [one for one in placements(record) if one[1].feasible]
    prefetching = [one for one in feasible if any(entry.prefetch for entry in one[0].components)]
    if not prefetching:
        return False
    if choose is None:
        current = max(prefetching, key=lambda one: sum(map(sum, one[1].device_bytes)) + sum(one[1].host_bytes.values()))
    else:
        current = choose.choice(prefetching if choose.random() < 0.7 else feasible)
    free, led = best_reachable(record, current[0])
    plan = solve(record, current=current[0])
    assert plan.cost is not None and free is not None and led is not None
    assert moves(record, current[0], placed(plan)) is not None
    assert plan.cost.seconds <= led * (1 + 1.1 * TOLERANCE)
    return led > free * (1 + 1e-4)
