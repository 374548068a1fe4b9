"""The solver against brute force, and against what each hard case must conclude."""

from __future__ import annotations

import pytest
from brute import placements
from examples import (
    GIB,
    SMALL,
    always,
    component,
    interval,
    made,
    placed,
    placement_of,
    random_record,
    record_of,
    resident,
)

from stowplan_agent.planning import cost, moves, solve, with_device_memory, with_host_memory
from stowplan_api.model import ContractError
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord


def check_best(record: CalibrationRecord, plan: Plan) -> None:
    feasible = [priced.seconds for _, priced in placements(record) if priced.feasible]
    if plan.status == "Infeasible":
        assert not feasible
        assert plan.shortfalls
        return
    assert plan.cost is not None and plan.cost.feasible
    assert plan.cost.seconds <= min(feasible, default=float("inf")) * (1 + 1.1e-6)


@pytest.mark.parametrize("seed", range(50))
def test_no_placement_of_a_random_record_is_better(seed: int) -> None:
    record = random_record(seed)
    if sum(len(group.layer_bytes) for one in record.components for group in one.groups) * len(record.ranks) > 5:
        record = record.model_copy(update={"ranks": record.ranks[:1]})
        record = CalibrationRecord.from_json(_one_rank(record))
    check_best(record, solve(record))


def _one_rank(record: CalibrationRecord) -> dict[str, object]:
    data = record.to_json()
    for each in data["intervals"]:
        for run in each["runs"]:
            run["activationBytes"] = run["activationBytes"][:1]
    return data


@pytest.mark.parametrize(
    "name", ["device-06.json", "infeasible-02.json", "infeasible-by-a-byte-01.json", "shares-11.json"]
)
def test_no_placement_of_a_small_record_is_better(name: str) -> None:
    record = record_of(f"small/{name}")
    check_best(record, solve(record))


@pytest.mark.parametrize("name", SMALL)
def test_small_records_are_proven_or_short(name: str) -> None:
    plan = solve(record_of(f"small/{name}"))
    assert (plan.status == "Infeasible") == name.startswith("infeasible")
    assert plan.proof["status"] == ("INFEASIBLE" if plan.status == "Infeasible" else "OPTIMAL")


def test_one_byte_short_says_so() -> None:
    record = record_of("small/infeasible-by-a-byte-01.json")
    plan = solve(record)
    assert plan.shortfalls[0].short_bytes == 1
    needed = next(change.needed_bytes for change in plan.would_fit if change.what == "deviceMemory")
    assert needed == record.ranks[0].capacity_bytes + 1
    assert solve(with_device_memory(record, needed)).status == "Optimal"


def test_what_would_fit_is_the_smallest() -> None:
    record = record_of("small/infeasible-02.json")
    needed = next(c.needed_bytes for c in solve(record).would_fit if c.what == "deviceMemory")
    assert needed is not None
    assert solve(with_device_memory(record, needed)).status == "Optimal"
    assert solve(with_device_memory(record, needed - 1)).status == "Infeasible"


@pytest.mark.parametrize(("gib", "advised"), [(4, False), (9, True)])
def test_a_smaller_shape_is_advised_only_where_one_can_fit(gib: int, advised: bool) -> None:
    """8 GiB of loose weights: on 9 GiB less activations help, on 4 GiB not even none at all."""
    record = made([component("vae", 8)], [interval("vae", 1, 3)], card=64, host=64)
    plan = solve(with_device_memory(record, gib * GIB))
    assert plan.status == "Infeasible"
    assert ("shape" in {change.what for change in plan.would_fit}) is advised


def test_host_memory_that_would_fit() -> None:
    record = made([component("denoiser", 4)], [interval("denoiser", 1, 1), interval(None, 1, 5)], card=8, host=1)
    plan = solve(record)
    assert plan.status == "Infeasible"
    needed = next(c.needed_bytes for c in plan.would_fit if c.what == "hostMemory")
    assert needed == 4 * GIB
    assert solve(with_host_memory(record, needed)).status == "Optimal"


def test_an_unreachable_best_is_not_the_answer() -> None:
    record, current = record_of("small/moves-blocked-01.json"), placement_of("small/moves-blocked-01.current.json")
    free, plan = solve(record), solve(record, current=current)
    assert free.placement is not None and free.cost is not None and plan.cost is not None
    assert moves(record, current, free.placement) is None
    assert plan.cost.seconds > free.cost.seconds
    assert plan.placement == current and plan.moves == ()


def test_moves_reach_the_target_within_limits() -> None:
    record, current = record_of("small/moves-02.json"), placement_of("small/moves-02.current.json")
    plan = solve(record, current=current)
    assert plan.moves
    entries = {entry.name: entry for entry in current.components}
    for move in plan.moves:
        assert entries[move.component] == move.from_
        entries[move.component] = move.to
        assert cost(record, Placement(components=tuple(entries.values()))).feasible
    assert plan.placement is not None
    assert entries == {entry.name: entry for entry in plan.placement.components}


def test_hard_1_keep_or_die() -> None:
    record = record_of("hard-1-keep-or-die-31gib.json")
    modes = {entry.mode for entry in placed(solve(record)).components}
    assert modes == {"Resident"}
    chosen = placed(solve(with_device_memory(record, int(23.5 * GIB))))
    assert always(chosen.entry("transformer"), 60) == 60
    assert always(chosen.entry("text_encoder"), 36) < 36


def test_hard_2_the_largest_set_fits_and_the_sum_does_not() -> None:
    record = record_of("hard-2-permanent-or-forward-80gib.json")
    chosen = placed(solve(record))
    for name, layers in (("text_encoder", 40), ("transformer", 56)):
        entry = chosen.entry(name)
        streamed = layers - sum(group.resident_layers for group in entry.groups or ())
        assert entry.mode == "Offload" or streamed == 0, "nothing streams"
        assert always(entry, layers) < layers, "and not all of it stays for good"


def test_hard_7_each_rank_gets_the_pins_that_it_needs() -> None:
    (group,) = placed(solve(record_of("hard-7-unequal-pins-2-ranks.json"))).entry("transformer").groups or ()
    streamed = 48 - group.resident_layers
    assert group.pinned_layers[0] == streamed
    assert 0 < group.pinned_layers[1] < 12


def test_hard_3_decode_does_not_fit() -> None:
    record = record_of("hard-3-decode-does-not-fit-24gib.json")
    plan = solve(record)
    everything = Placement(components=tuple(resident(one.name) for one in record.components))
    assert 3 in {violation.interval for violation in cost(record, everything).violations}
    assert plan.cost is not None and plan.cost.seconds < cost(record, everything).seconds + 1


def test_hard_4_bytes_go_to_the_expert_with_more_passes() -> None:
    chosen = placed(solve(record_of("hard-4-two-experts-48gib.json")))
    assert always(chosen.entry("transformer_2"), 40) == 40
    assert 0 < always(chosen.entry("transformer"), 40) < 40


def test_hard_5_the_reserve_of_an_extrapolated_record() -> None:
    record = record_of("hard-5-unprobed-expert-80gib.json")
    assert {entry.mode for entry in placed(solve(record)).components} != {"Resident"}
    measured = record.model_copy(update={"extrapolated": False})
    assert {entry.mode for entry in placed(solve(measured)).components} == {"Resident"}


def test_hard_6_one_shot_encoder() -> None:
    chosen = placed(solve(record_of("hard-6-one-shot-encoder-16gib.json")))
    assert always(chosen.entry("transformer"), 30) >= 28
    assert always(chosen.entry("text_encoder"), 36) == 0


def test_all_resident_where_everything_fits() -> None:
    plan = solve(record_of("wan22-t2v-a14b-h200.json"))
    assert {entry.mode for entry in placed(plan).components} == {"Resident"}
    assert plan.worth is not None and plan.worth.device_seconds_per_gib == 0


def test_nothing_to_gain_moves_nothing() -> None:
    record = made(
        [component("denoiser", 0, [0.1] * 6)],
        [interval("denoiser", 9, 1, layers=6, seconds=0.5)],
        card=80,
        contention=1,
    )
    current = Placement(components=(resident("denoiser"),))
    plan = solve(record, current=current)
    assert plan.placement == current and plan.moves == ()


def test_same_input_same_bytes_out() -> None:
    record = record_of("small/tie-02.json")
    assert solve(record).canonical() == solve(record).canonical()


@pytest.mark.parametrize("gib", [0, 2, 3, 4, 6])
def test_more_memory_is_never_slower(gib: int) -> None:
    record = record_of("small/device-14.json")
    less, more = (solve(with_device_memory(record, int(size * GIB))) for size in (gib, gib + 0.7))
    if less.cost is not None:
        assert more.cost is not None
        assert more.cost.seconds <= less.cost.seconds * (1 + 2e-6)


def test_a_current_placement_of_another_model_is_refused() -> None:
    with pytest.raises(ContractError, match="component vae"):
        solve(record_of("small/device-03.json"), current=Placement(components=(resident("vae"),)))


@pytest.mark.parametrize("factor", [0.0, 1e-300, 1e-12, 1e6])
def test_seconds_of_any_size_give_a_plan(factor: float) -> None:
    data = with_device_memory(record_of("small/both-05.json"), 1 << 40).to_json()
    for each in data["intervals"]:
        for run in each["runs"]:
            run["looseSeconds"] *= factor
            run["layerSeconds"] = {
                group: [one * factor for one in layers] for group, layers in run["layerSeconds"].items()
            }
    record = CalibrationRecord.from_json(data)
    plan = solve(record)
    assert plan.cost is not None and plan.placement is not None
    assert plan.cost.seconds == cost(record, plan.placement).seconds
