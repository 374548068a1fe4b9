"""Hundreds of random small records: the solver agrees with brute force, also where nothing fits or moves bind."""

from __future__ import annotations

import random

import numpy as np
import pytest
from agreement import check_agreement
from brute import placements
from examples import random_record, small_record
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import TOLERANCE, best_reachable, seconds_of, tables_of

from stowplan_agent.planning import cost, moves, solve
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord

chance = st.randoms(use_true_random=False)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(chance)
def test_agrees_with_brute_force(choose: random.Random) -> None:
    check_agreement(small_record(choose))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(chance)
def test_agrees_with_brute_force_where_moves_bind(choose: random.Random) -> None:
    check_reachable(small_record(choose, ranks=1), choose)


def check_reachable(record: CalibrationRecord, choose: random.Random, *, full: bool = False) -> bool:
    """Whether the best placement could not be reached, from a placement at random or from the fullest."""
    feasible = [(placement, priced) for placement, priced in placements(record) if priced.feasible]
    if not feasible:
        return False
    fullest = max(feasible, key=lambda one: sum(map(sum, one[1].device_bytes)) + sum(one[1].host_bytes.values()))
    current = fullest[0] if full else choose.choice(feasible)[0]
    free, led = best_reachable(record, current)
    plan = solve(record, current=current)
    assert plan.placement is not None and plan.cost is not None and free is not None and led is not None
    assert moves(record, current, plan.placement) is not None
    assert plan.cost.seconds <= led * (1 + 1.1 * TOLERANCE)
    entries = {entry.name: entry for entry in current.components}
    for move in plan.moves:
        entries[move.component] = move.to
        assert cost(record, Placement(components=tuple(entries.values()))).feasible
    assert Placement(components=tuple(entries[e.name] for e in plan.placement.components)) == plan.placement
    return led > free * (1 + 1e-4)


@pytest.mark.parametrize("seed", [37, 63, 125, 131, 177, 237, 322, 398, 452, 506, 510, 515, 669, 756])
def test_agrees_with_brute_force_where_only_the_order_of_moves_forbids_the_best(seed: int) -> None:
    choose = random.Random(seed)
    assert check_reachable(small_record(choose, ranks=1, tight="moves", count=2), choose, full=True)


@pytest.mark.parametrize("seed", range(10))
def test_parts_add_up(seed: int) -> None:
    """What brute force relies on: bytes add up, and the walk through the timeline is the cost model's."""
    record = random_record(seed)
    choose = random.Random(seed)
    tables = tables_of(record)
    index = [choose.randrange(len(table.entries)) for table in tables]
    placement = Placement(components=tuple(t.entries[i] for t, i in zip(tables, index, strict=True)))
    nothing = cost(record, placement)
    assert seconds_of(record, tables, np.array([index]))[0] == pytest.approx(nothing.seconds, rel=1e-12)
    weights = sum(table.weights[i] for table, i in zip(tables, index, strict=True))
    for interval, ranks in enumerate(nothing.device_bytes):
        held = record.ranks[0].outside_bytes + max(
            (run.activation_bytes[0] for run in record.intervals[interval].runs if run.passes), default=0
        )
        assert ranks[0] == held + weights[interval]
