"""Section P of the public cases: faults that were reported about other software, none of which may happen here."""

from __future__ import annotations

from examples import GIB, always, component, interval, layerwise, made, placed

from stowplan_agent.planning import cost, solve
from stowplan_agent.planning.limits import activation_bytes
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


def test_p3_intervals_are_not_added_up() -> None:
    record = made(
        [component("encoder", 0, [10 / 24] * 24), component("denoiser", 0, [0.3] * 40)],
        [interval("encoder", 1, 1, layers=24), interval("denoiser", 80, 1, layers=40)],
        card=16,
    )
    plan = solve(record)
    assert always(placed(plan).entry("denoiser"), 40) == 40
    assert always(placed(plan).entry("encoder"), 24) <= 6


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
    assert 6 * GIB <= plan.cost.locked_bytes["node-0"] <= 6.5 * GIB


def test_p5_the_explanation_says_why_not_one_more_layer() -> None:
    record = made(
        [component("denoiser", 0, [0.5] * 50)], [interval("denoiser", 9, 1, layers=50)], card=19.3, reserve=0.75
    )
    plan = solve(record)
    assert always(placed(plan).entry("denoiser"), 50) == 33
    (explanation,) = plan.explanations
    assert explanation.lost is not None and "bytes" in explanation.because and "interval 0" in explanation.because
    more = Placement(components=(layerwise("denoiser", 34, [16]),))
    assert str(cost(record, more).violations[0].short_bytes) in explanation.because


def test_p6_resident_and_the_seconds_it_saves() -> None:
    record = made([component("denoiser", 0.5, [0.6] * 60)], [interval("denoiser", 30, 5, layers=60)], card=80)
    current = Placement(components=(layerwise("denoiser", 0, [60]),))
    plan = solve(record, current=current)
    assert placed(plan).entry("denoiser").mode == "Resident"
    assert plan.cost is not None and plan.cost.seconds < cost(record, current).seconds
    assert [move.component for move in plan.moves] == ["denoiser"]


def test_p7_no_hidden_floor_of_resident_weights() -> None:
    record = made(
        [component("denoiser", 0.2, [0.67] * 40)], [interval("denoiser", 4, 13, layers=40)], card=15.5, reserve=0.5
    )
    assert solve(record).status == "Optimal"


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
