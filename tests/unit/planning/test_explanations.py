"""Explanations: what they say of the lost option is what `cost` says, and no better option was passed over."""

from __future__ import annotations

import random

import pytest
from brute import entries
from examples import always, component, interval, layerwise, made, placed, placement_of, record_of, small_record
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import cost, moves, solve
from stowplan_agent.planning.wording import because
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Explanation, Plan
from stowplan_api.record import CalibrationRecord

TOLERANCE = 2.2e-6
rule = settings(max_examples=60, deadline=None, derandomize=True)
chance = st.randoms(use_true_random=False)


def swapped(plan: Plan, entry: ComponentPlacement) -> Placement:
    return Placement(components=tuple(entry if one.name == entry.name else one for one in placed(plan).components))


def check_fields(record: CalibrationRecord, plan: Plan, said: Explanation, current: Placement | None = None) -> None:
    """The fields are those of the placement with the lost option in it, and the words are those of the fields."""
    assert plan.cost is not None
    assert said.chosen_entry == placed(plan).entry(said.component)
    assert said.because == because(said, record.component(said.component))
    if said.lost_entry is None:
        assert said.lost is None and said.seconds is None and said.constraint in (None, "fixed")
        return
    priced = cost(record, swapped(plan, said.lost_entry))
    assert said.seconds == pytest.approx(priced.seconds - plan.cost.seconds, abs=TOLERANCE * plan.cost.seconds)
    assert said.lost != said.chosen
    broken = [(one.constraint, one.interval, one.rank, one.node, one.short_bytes) for one in priced.violations]
    where = (said.constraint, said.interval, said.rank, said.node, said.short_bytes)
    if said.constraint in (None, "moves"):
        assert not broken and where[1:] == (None, None, None, None)
        if said.constraint == "moves":
            assert current is not None and moves(record, current, swapped(plan, said.lost_entry)) is None
    else:
        assert where in broken and said.short_bytes == max(one[-1] for one in broken)
    assert (said.interval_name is None) == (said.interval is None)


@rule
@given(chance)
def test_what_is_said_of_a_lost_option_is_its_price(choose: random.Random) -> None:
    record = small_record(choose)
    plan = solve(record)
    for said in plan.explanations:
        check_fields(record, plan, said)


@pytest.mark.parametrize("seed", range(200))
def test_no_better_option_is_passed_over(seed: int) -> None:
    """Of all faster entries none is short of fewer bytes; where none is faster, none that fits is less slow.

    An Offload counts with all of it pinned or nothing: with any pins, the nearest would always be a byte away.
    """
    choose = random.Random(seed)
    record = small_record(choose, ranks=1, count=choose.choice([1, 2]))
    plan = solve(record)
    for said in plan.explanations:
        assert plan.cost is not None
        slack = TOLERANCE * plan.cost.seconds
        whole = record.component(said.component).total_bytes()
        listed = list(entries(record.component(said.component), record))
        listed = [one for one in listed if one.pinned_bytes in (None, (0,), (whole,))]
        others = [(entry, cost(record, swapped(plan, entry))) for entry in listed]
        faster = [priced for _, priced in others if priced.seconds < plan.cost.seconds - slack]
        short = [max(one.short_bytes for one in priced.violations) for priced in faster]
        if said.seconds is not None and said.seconds < 0:
            assert said.short_bytes is not None and said.short_bytes <= min(short, default=said.short_bytes)
        else:
            assert not faster
        if said.constraint is None and said.seconds is not None:
            held = [cost(record, placed(plan)).device_bytes, cost(record, placed(plan)).host_bytes]
            rest = [p.seconds for _, p in others if p.feasible and [p.device_bytes, p.host_bytes] != held]
            assert said.seconds <= min(rest, default=float("inf")) - plan.cost.seconds + slack


def test_an_order_of_moves_that_does_not_exist_is_the_reason() -> None:
    record, current = record_of("small/moves-blocked-01.json"), placement_of("small/moves-blocked-01.current.json")
    plan = solve(record, current=current)
    assert plan.status == "Optimal" and plan.placement == current
    for said in plan.explanations:
        check_fields(record, plan, said, current)


def test_a_fixed_component_says_so() -> None:
    fixed = {"mode": "Offload", "reason": "a kernel keeps its address"}
    record = made(
        [component("denoiser", 1, [0.5] * 4), component("vae", 1, fixed=fixed)],
        [interval("denoiser", 9, 1, layers=4), interval("vae", 1, 1)],
        card=16,
    )
    said = solve(record).explanations[1]
    assert (said.constraint, said.lost_entry) == ("fixed", None)
    assert said.because == "it must stay Offload: a kernel keeps its address"


def test_pins_are_a_reason() -> None:
    """Nothing more fits the card, and one more pinned layer would be faster."""
    record = made(
        [component("denoiser", 0, [1.0] * 4)],
        [interval("denoiser", 9, 1, layers=4, seconds=0.2)],
        card=4.6,
        pinnable=2.95,
        reserve=0.5,
    )
    (said,) = solve(record).explanations
    assert said.constraint == "pinned" and said.node == "node-0" and said.rank is None
    assert said.seconds is not None and said.seconds < 0
    assert said.because.startswith(f"pinned memory: node node-0 is {said.short_bytes} bytes")


def test_options_that_differ_in_little_are_told_apart_in_words() -> None:
    """Both keep no layer: the words then name slots and pins."""
    record = record_of("hard-9-nothing-to-gain-h200.json")
    said = next(one for one in solve(record).explanations if one.component == "transformer")
    assert said.seconds == 0 and said.constraint is None
    assert said.lost is not None and said.lost != said.chosen and "slots" in said.chosen


def test_one_layer_more_is_short_of_the_bytes_that_it_says() -> None:
    record = made([component("denoiser", 0, [0.5] * 50)], [interval("denoiser", 9, 1, layers=50)], card=19.3, reserve=0)
    plan = solve(record)
    (said,) = plan.explanations
    resident = always(placed(plan).entry("denoiser"), 50)
    more = cost(record, Placement(components=(layerwise("denoiser", resident + 1, [0]),)))
    assert (said.constraint, said.interval, said.interval_name, said.rank) == ("device", 0, "denoiser forward", 0)
    assert said.short_bytes == more.violations[0].short_bytes
