"""Section P of the public cases: faults that were reported about other software, none of which may happen here."""

from __future__ import annotations

import random
from itertools import product

import pytest
from examples import GIB, always, component, interval, layerwise, made, offload, placed, resident

from stowplan_agent.cli.plan import solved
from stowplan_agent.planning import cost, solve
from stowplan_agent.planning.limits import activation_bytes
from stowplan_agent.report.explanation import move_lines
from stowplan_api.placement import Placement


def test_p1_weights_make_room_for_the_decode() -> None:
    record = made(
        [component("denoiser", 0.4, [0.29] * 40), component("vae", 0.25)],
        [interval("denoiser", 30, 1, layers=40), interval("vae", 1, 16)],
        card=24,
    )
    plan = solve(record)
    assert plan.status == "Optimal" and plan.cost is not None
    held = plan.cost.device_bytes[1][0] - activation_bytes(record.intervals[1], 0)
    assert held <= (8 - 0.5) * GIB


def test_p2_six_and_five_and_not_nine() -> None:
    parts = [component(name, size) for name, size in (("nine", 9), ("six", 6), ("five", 5))]
    stays = [*(interval(name, 1, 0) for name in ("nine", "six", "five")), interval(None, 1, 9.5)]
    record = made(parts, stays, card=21, reserve=0)
    chosen = placed(solve(record))
    assert {entry.name for entry in chosen.components if entry.mode == "Resident"} == {"six", "five"}


@pytest.mark.parametrize("seed", range(200))
def test_p2_a_knapsack_of_whole_components(seed: int) -> None:
    """Each component stays, is brought in, or is brought in early: then it hides in part, and takes room before."""
    choose = random.Random(seed)
    names = ("a", "b", "c", "d", "e")[: choose.choice([3, 4, 5])]
    parts = [component(name, choose.uniform(1, 9)) for name in names]
    stays = [interval(name, choose.choice([1, 2]), choose.uniform(0, 1)) for name in names]
    stays.insert(choose.randrange(len(stays)), interval(None, 1, choose.uniform(0, 4)))
    record = made(parts, stays, card=choose.uniform(9, 30), reserve=0)
    ways = [
        (resident(name), *(offload(name, [part["looseBytes"]], prefetch=early) for early in (False, True)))
        for name, part in zip(names, parts, strict=True)
    ]
    prices = [cost(record, Placement(components=chosen)) for chosen in product(*ways)]
    best = min((priced.seconds for priced in prices if priced.feasible), default=None)
    plan = solve(record)
    assert (plan.cost is None) == (best is None)
    if plan.cost is not None:
        assert plan.cost.seconds == pytest.approx(best, rel=2e-6)


def test_p3_intervals_are_not_added_up() -> None:
    encoder, denoiser = component("encoder", 0, [10 / 24] * 24), component("denoiser", 0, [0.3] * 40)
    stays = [interval("encoder", 1, 1, layers=24), *(interval("denoiser", 20, 1, layers=40) for _ in range(4))]
    plan = solve(made([encoder, denoiser], stays, card=16))
    assert plan.cost is not None and always(placed(plan).entry("denoiser"), 40) == 40
    assert all(12 * GIB - 100 <= ranks[0] - GIB <= 14.5 * GIB for ranks in plan.cost.device_bytes[1:])
    assert always(placed(plan).entry("encoder"), 24) <= 6, "at most what the denoiser leaves room for"
    # A reserve that leaves less than a layer beside the denoiser: then none of the encoder is there while it runs.
    stays[0] = interval("encoder", 1, 0.1, layers=24)
    tight = made([encoder, denoiser], stays, card=16, reserve=2.7)
    plan = solve(tight)
    assert plan.cost is not None and always(placed(plan).entry("denoiser"), 40) == 40
    weights = sum(tight.component("denoiser").groups[0].layer_bytes)
    assert all(ranks[0] == weights + activation_bytes(tight.intervals[1], 0) for ranks in plan.cost.device_bytes[1:])


def test_p4_layers_are_pinned_one_by_one() -> None:
    record = made(
        [component("denoiser", 0, [1.0] * 10), component("other", 0, [0.5] * 4)],
        [interval("denoiser", 9, 7, layers=10), interval("other", 9, 7, layers=4)],
        card=9.6,
        pinnable=6.5,
        reserve=0.5,
    )
    plan = solve(record)
    assert plan.cost is not None
    locked = plan.cost.locked_bytes["node-0"]
    assert 6 * GIB <= locked <= 6.5 * GIB, "layers are pinned one by one, not components"


def test_p5_the_explanation_says_why_not_one_more_layer() -> None:
    """Room for 34 layers of half a GiB and a ring of two; 35 lack 467 MiB."""
    record = made(
        [component("denoiser", 0, [0.5] * 50)], [interval("denoiser", 9, 1, layers=50)], card=19.8, reserve=0.75
    )
    plan = solve(record)
    entry = placed(plan).entry("denoiser")
    assert always(entry, 50) == 34 and [group.slots for group in entry.groups or ()] == [2]
    (said,) = plan.explanations
    more = Placement(components=(layerwise("denoiser", 35, [15]),))
    (short,) = cost(record, more).violations
    assert (said.constraint, said.interval, said.rank, said.short_bytes) == ("device", 0, 0, short.short_bytes)
    assert said.lost is not None and str(short.short_bytes) in said.because and "interval 0" in said.because


def test_p5_no_further_slot_where_it_saves_no_time() -> None:
    """Compute hides every copy: two slots do, with room for many more."""
    stay = interval("denoiser", 9, 1, layers=50, seconds=0.5)
    plan = solve(made([component("denoiser", 0, [0.5] * 50)], [stay], card=19.8, contention=1))
    assert {group.slots for group in placed(plan).entry("denoiser").groups or ()} == {2}


def test_p6_resident_and_the_seconds_it_saves() -> None:
    record = made([component("denoiser", 0.5, [0.6] * 60)], [interval("denoiser", 30, 5, layers=60)], card=80)
    current = Placement(components=(layerwise("denoiser", 0, [60]),))
    plan = solve(record, current=current)
    assert placed(plan).entry("denoiser").mode == "Resident"
    assert plan.cost is not None and plan.cost.seconds < cost(record, current).seconds
    assert [move.component for move in plan.moves] == ["denoiser"]
    stated = solved(record, current)
    assert stated.current_seconds == cost(record, current).seconds
    assert stated.saved_seconds == pytest.approx(cost(record, current).seconds - plan.cost.seconds)
    assert any("this saves" in line for line in move_lines(stated))


def test_p7_no_hidden_floor_of_resident_weights() -> None:
    record = made(
        [component("denoiser", 0.2, [0.67] * 40)], [interval("denoiser", 4, 13, layers=40)], card=15.5, reserve=0.5
    )
    plan = solve(record)
    assert plan.status == "Optimal" and plan.cost is not None
    assert always(placed(plan).entry("denoiser"), 40) == 0, "no layer has to be resident"
    assert plan.cost.device_bytes[0][0] <= 15 * GIB


def test_p8_two_denoisers_in_turn_within_each_step() -> None:
    steps = 4
    turns = [interval(name, 1, 1, layers=30) for _ in range(steps) for name in ("first", "second")]
    record = made([component("first", 0, [0.3] * 30), component("second", 0, [0.3] * 30)], turns, card=16, reserve=0.5)
    plan = solve(record)
    assert plan.status == "Optimal" and plan.cost is not None
    alone = made([component("first", 0, [0.3] * 30)], turns[:1], card=16, reserve=0.5)
    kept = {name: placed(plan).entry(name) for name in ("first", "second")}
    for turn, ranks in enumerate(plan.cost.device_bytes):
        assert ranks[0] <= 15.5 * GIB
        other = kept["second" if turn % 2 == 0 else "first"]
        holding = always(other, 30) * int(0.3 * GIB)
        assert ranks[0] >= holding + activation_bytes(record.intervals[turn], 0), "what the other still holds counts"
    assert always(placed(solve(alone)).entry("first"), 30) == 30, "on its own it would stay whole"
    assert always(kept["first"], 30) + always(kept["second"], 30) < 60
