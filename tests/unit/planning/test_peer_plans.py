"""The solver among three places for a layer: brute force agrees on small records; what it picks on large ones."""

from __future__ import annotations

import random

import pytest
from agreement import check_agreement
from brute import entries
from early_records import early_record
from examples import GIB, component, interval, made, placed, record_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import TOLERANCE, best, best_reachable
from test_explanations import check_fields
from tied import least_of_ties, peak_of

from stowplan_agent.planning import cost, shaped, solve, space, with_device_memory
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord

chance = st.randoms(use_true_random=False)
RATES = (400e9, 100e9, 20e9, 5e9)


def with_peers(record: CalibrationRecord, rate: float) -> CalibrationRecord:
    ranks = tuple(rank.model_copy(update={"peer_bytes_per_second": rate}) for rank in record.ranks)
    return record.model_copy(update={"ranks": ranks})


def peer_record(choose: random.Random, *, plenty: bool = False) -> CalibrationRecord:
    """One or two components of up to three layers on two or three ranks with peers, tight in one thing or another."""
    ranks = choose.choice([2, 2, 3])
    components, intervals, weights = [], [], 0.0
    for name in ["encoder", "denoiser"][: choose.choice([1, 2, 2])]:
        size = choose.choice([0.25, 0.5, 0.75])
        layers = [size * choose.choice([1, 1, 1, 1.5]) for _ in range(choose.choice([0, 2, 3, 3]))]
        loose = choose.choice([0.0, 0.5]) if layers else choose.choice([0.5, 1.0])
        weights += loose + sum(layers)
        components.append(component(name, loose, layers))
        seconds, passes = choose.choice([0.001, 0.004, 0.02, 0.08]), choose.choice([1, 2, 9])
        intervals.append(interval(name, passes, choose.choice([0.125, 0.5]), layers=len(layers), seconds=seconds))
    if choose.random() < 0.4:
        intervals.insert(1, interval(None, 1, choose.choice([0.125, 1.0])))
    tight = "device" if plenty else choose.choice(["device", "device", "pins", "host", "all"])
    record = made(
        components,
        intervals,
        card=weights * choose.uniform(0.2, 1.05) + 0.75,
        pinnable=weights * choose.uniform(0, 1) if tight in ("pins", "all") else 1000,
        host=weights * choose.uniform(0.1, 1) if tight in ("host", "all") else 1000,
        contention=choose.choice([1.0, 1.05, 1.2]),
        reserve=0.25,
        ranks=ranks,
        pageable=choose.choice([5e9, 20e9]),
        peers=choose.choice(RATES),
    )
    return unequal(record, choose) if choose.random() < 0.3 else record


def unequal(record: CalibrationRecord, choose: random.Random) -> CalibrationRecord:
    """The record with less of one thing or another on its last rank."""
    data = record.to_json()
    last, link = data["ranks"][-1], data["ranks"][-1]["link"]
    last["capacityBytes"] = int(last["capacityBytes"] * choose.choice([1, 0.95]))
    last["peerBytesPerSecond"] *= choose.choice([1, 0.5])
    last["link"] = link | choose.choice([{}, {"pinnedBytesPerSecond": 21e9, "contention": 1.3}])
    return CalibrationRecord.from_json(data)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(chance)
def test_agrees_with_brute_force(choose: random.Random) -> None:
    check_agreement(peer_record(choose))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(chance)
def test_agrees_with_brute_force_where_something_is_prefetched(choose: random.Random) -> None:
    check_agreement(with_peers(early_record(choose, ranks=2), choose.choice(RATES)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(chance)
def test_ties_go_as_brute_force_says(choose: random.Random) -> None:
    record = peer_record(choose, plenty=True)
    plan, least = solve(record), least_of_ties(record)
    assert (plan.cost is None) == (least is None)
    if plan.cost is not None and least is not None:
        early = sum(bool(entry.prefetch) for entry in placed(plan).components)
        mine = (0, early, peak_of(plan.cost), sum(plan.cost.locked_bytes.values()))
        # Brute force lists three choices of pinned bytes, the solver has all.
        assert mine <= least and mine[:3] == least[:3]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(chance)
def test_moves_lead_to_the_best_that_they_can(choose: random.Random) -> None:
    """Shards take their bytes on every rank at once, and what is within limits on one is on all."""
    record = peer_record(choose)
    listed = [list(entries(one, record)) for one in record.components]
    tried = (Placement(components=tuple(map(choose.choice, listed))) for _ in range(50))
    current = next((one for one in tried if cost(record, one).feasible), None)
    if current is None:
        return
    plan, (_, led) = solve(record, current=current), best_reachable(record, current)
    assert plan.cost is not None and led is not None
    assert plan.cost.seconds <= led * (1 + 1.1 * TOLERANCE)
    now = {entry.name: entry for entry in current.components}
    for move in plan.moves:
        now[move.component] = move.to
        assert cost(record, Placement(components=tuple(now.values()))).feasible
    assert tuple(now[entry.name] for entry in placed(plan).components) == placed(plan).components
    for said in plan.explanations:
        check_fields(record, plan, said, current)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(chance)
def test_no_pins_of_unlike_ranks_are_better(choose: random.Random) -> None:
    """What brute force, which gives all ranks the same pins, and the solver rely on."""
    record = peer_record(choose)
    plan = solve(record)
    if plan.cost is None:
        return
    for entry in placed(plan).components:
        unlike = _one_rank_pins_less(entry, choose)
        other = Placement(components=tuple(unlike if one is entry else one for one in placed(plan).components))
        assert cost(record, other).seconds >= plan.cost.seconds * (1 - TOLERANCE)


def _one_rank_pins_less(entry: ComponentPlacement, choose: random.Random) -> ComponentPlacement:
    def less(pins: tuple[int, ...] | None) -> tuple[int, ...]:
        given = list(pins or ())
        if given:
            rank = choose.randrange(len(given))
            given[rank] = choose.randint(0, given[rank])
        return tuple(given)

    if entry.mode != "Layerwise":
        return entry.model_copy(update={"pinned_bytes": less(entry.pinned_bytes)} if entry.pinned_bytes else {})
    groups = tuple(one.model_copy(update={"pinned_layers": less(one.pinned_layers)}) for one in entry.groups or ())
    return entry.model_copy(update={"groups": groups})


@settings(max_examples=15, deadline=None, derandomize=True)
@given(chance)
def test_what_is_left_out_where_pins_are_scarce_is_said(choose: random.Random) -> None:
    """Where pins are scarce and shapes are many: the answer is then within limits, and the proof names what is not."""
    record = peer_record(choose)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shaped, "MOST_OPEN", 0)
        patch.setattr(space, "LONG", choose.choice([-1, space.LONG]))
        plan = solve(record)
    for said in plan.explanations:  # nothing is lost to moves where none are made: what was left out is not named
        check_fields(record, plan, said)
    least = best(record)
    assert (plan.cost is None) == (least is None)
    if plan.cost is not None and least is not None and plan.cost.seconds > least * (1 + 1.1 * TOLERANCE):
        assert set(plan.proof["leftOut"]) & {shaped.CROWDED.format(component=one.name) for one in record.components}


def wan(card: float, peers: float, *, host: float = 120) -> CalibrationRecord:
    """Wan2.2 A14B on two cards with so many GiB each."""
    data = record_of("wan22-t2v-a14b-h200.json").to_json()
    data["ranks"] = [data["ranks"][0] | {"rank": rank, "peerBytesPerSecond": peers} for rank in range(2)]
    data["nodes"] = [data["nodes"][0] | {"hostBytes": int(host * GIB), "pinnableBytes": int(host * GIB)}]
    for run in (run for each in data["intervals"] for run in each["runs"]):
        run["activationBytes"] *= 2
    return with_device_memory(CalibrationRecord.from_json(data), int(card * GIB))


def counts(entry: ComponentPlacement) -> tuple[int, int]:
    """Resident and sharded layers."""
    groups = entry.groups or ()
    return sum(group.resident_layers for group in groups), sum(group.sharded_layers or 0 for group in groups)


def test_what_fits_no_card_whole_lies_in_shards_on_two() -> None:
    """Both experts weigh 53 GiB: on 48 GiB they come and go, and two cards with peers have all of it, and no copy."""
    alone, shared = solve(wan(48, 0)), solve(wan(48, 388e9))
    assert alone.cost is not None and shared.cost is not None
    assert shared.cost.seconds < alone.cost.seconds
    assert alone.cost.host_bytes["node-0"] > 0 == shared.cost.host_bytes["node-0"]
    assert counts(placed(shared).entry("transformer")) == (0, 40)
    assert counts(placed(shared).entry("transformer_2")) == (17, 23), "more passes, more of it resident"
    said = next(one for one in shared.explanations if one.component == "transformer")
    assert said.chosen == "Layerwise: 0 of 40 blocks resident and 40 sharded over 2 ranks"
    assert said.lost == "Layerwise: 1 of 40 blocks resident for good and 39 sharded over 2 ranks"
    assert (said.constraint, said.interval_name, said.rank) == ("device", "vae decode", 0)
    assert said.seconds is not None and said.seconds < 0


def test_what_does_not_fit_in_shards_either_is_streamed() -> None:
    plan = solve(wan(24, 388e9))
    said = {one.component: one for one in plan.explanations}
    assert counts(placed(plan).entry("transformer")) == (0, 0), "fewer passes: all of it from the host"
    assert said["transformer_2"].chosen.endswith("0 of 40 blocks resident, 38 sharded over 2 ranks and 2 streamed")
    assert plan.cost is not None and plan.cost.host_bytes == plan.cost.locked_bytes


def test_nothing_is_left_out_that_could_be_faster_than_compute_alone() -> None:
    """Pins are scarce and shapes are many; but where everything is resident, no other placement takes less."""
    assert solve(wan(64, 388e9, host=20)).proof["leftOut"]
    assert not solve(wan(96, 388e9, host=20)).proof["leftOut"]


def test_slow_peers_leave_layers_where_they_were() -> None:
    """A peer link slower than the host's: nothing is won by shards."""
    assert not any(counts(entry)[1] for entry in placed(solve(wan(48, 1e9))).components)


def test_a_record_without_peers_has_no_shards_to_give() -> None:
    plan = solve(wan(48, 0))
    assert not any(counts(entry)[1] for entry in placed(plan).components)
    assert "sharded" not in plan.proof["space"] and "sharded" in solve(wan(96, 388e9)).proof["space"]


def test_what_nothing_holds_is_short_by_what_shards_and_one_host_copy_need() -> None:
    """Half of 8 GiB on each of two cards: a byte less than that fits neither with nor without a host."""
    record = made(
        [component("denoiser", 0, [1.0] * 8)],
        [interval("denoiser", 9, 0, layers=8)],
        card=3,
        host=0,
        reserve=0,
        ranks=2,
        peers=400e9,
    )
    plan = solve(record)
    assert plan.status == "Infeasible"
    needed = {change.what: change.needed_bytes for change in plan.would_fit}
    assert needed["deviceMemory"] == 6 * GIB, "eight halves and a ring of two"
    assert needed["hostMemory"] == 6 * GIB, "a ring of two, two layers' halves, and one copy of the other six"
    assert solve(with_device_memory(record, 6 * GIB)).status == "Optimal"
    assert solve(with_device_memory(record, 6 * GIB - 1)).status == "Infeasible"
