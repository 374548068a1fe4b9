"""What would fit is the smallest change: with it a placement exists, and with one step less none does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from examples import GIB, component, interval, made, record_of, resident, small_record
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import cost, solve, with_device_memory, with_host_memory
from stowplan_agent.planning.requests import with_activations, with_workloads
from stowplan_agent.planning.setting import setting_of
from stowplan_agent.planning.shortfall import smallest_peak
from stowplan_agent.report.explanation import infeasible_lines
from stowplan_api.placement import Placement
from stowplan_api.plan import Change, Plan
from stowplan_api.record import CalibrationRecord

rule = settings(max_examples=80, deadline=None, derandomize=True)
chance = st.randoms(use_true_random=False)


def fits(record: CalibrationRecord) -> bool:
    return solve(record).status == "Optimal"


def change(plan: Plan, what: str) -> Change | None:
    return next((one for one in plan.would_fit if one.what == what), None)


def too_small(choose: random.Random) -> CalibrationRecord:
    """On so little device and host memory that often nothing fits; ranks and nodes that differ, fixed components."""
    data = small_record(choose, tight=choose.choice(["device", "host", "all", "moves"])).to_json()
    for rank in data["ranks"]:
        rank["capacityBytes"] = int(rank["capacityBytes"] * choose.uniform(0.4, 1.5))
        rank["reserveBytes"] = choose.choice([None, rank["reserveBytes"]])
    for node in data["nodes"]:
        node["hostBytes"] = int(node["hostBytes"] * choose.choice([0.1, 0.5, 1]))
    for each in data["intervals"]:
        each["adaptive"] = choose.random() < 0.2
        more = choose.choice([1, 1, 4, 16])
        each["runs"][0]["activationBytes"] = [one * more for one in each["runs"][0]["activationBytes"]]
    if choose.random() < 0.4:
        one = choose.choice(data["components"])
        modes = ["Resident", "Offload", "Layerwise"] if one["groups"] else ["Resident", "Offload"]
        one["fixed"] = {"mode": choose.choice(modes), "reason": "a test"}
    if len(data["ranks"]) == 2 and choose.random() < 0.5:
        data["nodes"].append(data["nodes"][0] | {"name": "node-1"})
        data["ranks"][1]["node"] = "node-1"
    return CalibrationRecord.from_json(data)


@rule
@given(chance)
def test_every_change_is_the_smallest_of_its_kind(choose: random.Random) -> None:
    record = too_small(choose)
    plan = solve(record)
    if plan.status == "Optimal":
        assert not plan.would_fit and not plan.shortfalls
        return
    device, host, shape = (change(plan, what) for what in ("deviceMemory", "hostMemory", "shape"))
    assert device is not None and device.needed_bytes is not None
    larger = with_device_memory(record, device.needed_bytes)
    if device.also_host_bytes is None:
        assert fits(larger) and not fits(with_device_memory(record, device.needed_bytes - 1))
    else:
        assert not fits(with_device_memory(record, 1 << 45)), "device memory alone does not help"
        assert fits(with_host_memory(larger, device.also_host_bytes))
        assert not fits(with_host_memory(larger, device.also_host_bytes - 1))
        smaller = with_device_memory(record, device.needed_bytes - 1)
        assert not fits(with_host_memory(smaller, 1 << 45))
    if host is not None and host.needed_bytes is not None:
        assert fits(with_host_memory(record, host.needed_bytes))
        assert not fits(with_host_memory(record, host.needed_bytes - 1))
    else:
        assert not fits(with_host_memory(record, 1 << 45))
    if shape is not None and shape.needed_bytes is not None:
        assert fits(with_activations(record, shape.needed_bytes))
        assert not fits(with_activations(record, shape.needed_bytes + 1))
    else:
        assert not fits(with_activations(record, 0))


@rule
@given(chance)
def test_what_is_short_is_what_cost_says(choose: random.Random) -> None:
    record = too_small(choose)
    plan = solve(record)
    if plan.status == "Optimal":
        return
    placement, _, _ = smallest_peak(setting_of(record))
    found = cost(record, placement).violations
    assert sorted(plan.shortfalls, key=str) == sorted(found, key=str)
    assert plan.shortfalls[0].short_bytes == max(one.short_bytes for one in found) > 0


@rule
@given(chance)
def test_pins_never_make_a_record_infeasible(choose: random.Random) -> None:
    record = too_small(choose)
    nodes = tuple(node.model_copy(update={"pinnable_bytes": 0}) for node in record.nodes)
    assert fits(record.model_copy(update={"nodes": nodes})) == fits(record)


def two_workloads(small: float, big: float, *, card: float) -> CalibrationRecord:
    """One denoiser of 4 GiB, not in layers; activations in GiB of each workload."""
    data: dict[str, Any] = made([component("denoiser", 4)], [interval("denoiser", 9, 1)], card=card).to_json()
    data["workloads"] = [
        {"name": "clip", "width": 416, "height": 240, "frames": 17, "steps": 9, "weight": 3},
        {"name": "film", "width": 832, "height": 480, "frames": 81, "steps": 9, "weight": 1},
    ]
    (run,) = data["intervals"][0]["runs"]
    data["intervals"][0]["runs"] = [
        run | {"workload": "clip", "activationBytes": [int(small * GIB)]},
        run | {"workload": "film", "activationBytes": [int(big * GIB)], "passes": 36},
    ]
    return CalibrationRecord.from_json(data)


def test_the_workloads_that_fit_are_named_with_their_shapes() -> None:
    record = two_workloads(1, 8, card=8)
    plan = solve(record)
    found = change(plan, "workloads")
    assert found is not None and found.workloads == ("clip",)
    assert found.message == "only workload clip (416 x 240, 17 frames); without workload film (832 x 480, 81 frames)"
    assert fits(with_workloads(record, ["clip"])) and not fits(with_workloads(record, ["film"]))
    shape = change(plan, "shape")
    assert shape is not None and (shape.interval, shape.interval_name, shape.rank) == (0, "denoiser forward", 0)
    assert shape.needed_bytes == int(3.5 * GIB), "8 GiB less a reserve of 512 MiB and 4 GiB of weights"


def test_no_workload_is_named_where_none_fits() -> None:
    assert change(solve(two_workloads(5, 8, card=8)), "workloads") is None


def test_the_seconds_of_each_workload_average_to_those_of_the_price() -> None:
    record = two_workloads(1, 2, card=16)
    plan = solve(record)
    assert plan.placement is not None and plan.cost is not None
    seconds = plan.cost.workload_seconds
    for name, one in seconds.items():
        assert cost(with_workloads(record, [name]), plan.placement).seconds == pytest.approx(one)
    assert seconds["film"] > 3.9 * seconds["clip"]
    assert (3 * seconds["clip"] + seconds["film"]) / 4 == pytest.approx(plan.cost.seconds)


def test_each_workload_must_fit() -> None:
    """The one that is hardly ever asked for decides what fits."""
    data = two_workloads(1, 2, card=8).to_json()
    assert fits(CalibrationRecord.from_json(data))
    data["workloads"][1]["weight"] = 1e-9
    data["intervals"][0]["runs"][1]["activationBytes"] = [4 * GIB]
    plan = solve(CalibrationRecord.from_json(data))
    assert plan.status == "Infeasible" and plan.shortfalls[0].interval == 0


def test_both_kinds_of_memory_are_asked_for_together_where_neither_helps_alone() -> None:
    fixed = {"mode": "Offload", "reason": "a test"}
    record = made([component("denoiser", 4, fixed=fixed)], [interval("denoiser", 9, 1)], card=2, host=1)
    plan = solve(record)
    device = change(plan, "deviceMemory")
    assert device is not None and device.also_host_bytes == 4 * GIB
    assert "together with 4 GiB (4294967296 bytes) of host memory a node" in device.message
    assert {one.what for one in plan.would_fit} == {"deviceMemory"}


def test_a_current_placement_that_no_single_move_mends_is_the_reason() -> None:
    """Three components are kept on a card that holds one: whichever goes first, two are still too many."""
    names = ("encoder", "denoiser", "vae")
    parts, stays = [component(name, 3) for name in names], [interval(name, 2, 0.5) for name in names]
    record = made(parts, stays, card=5)
    current = Placement(components=tuple(resident(name) for name in names))
    assert fits(record)
    plan = solve(record, current=current)
    assert plan.status == "Infeasible" and "no order of moves from the current one" in plan.proof["reason"]
    assert cost(record, Placement.from_json(plan.proof["unreachable"])).feasible
    assert {one.interval for one in plan.shortfalls} == {0, 1, 2}
    (first, *rest) = infeasible_lines("made", plan)
    assert "no order of moves" in first and all("short: " in line for line in rest)


@pytest.mark.parametrize("size", [4, 8, 12, 16])
def test_changes_of_a_real_record(size: int) -> None:
    record = with_device_memory(record_of("hard-3-decode-does-not-fit-24gib.json"), size * GIB // 2)
    plan = solve(record)
    for one in plan.would_fit:
        assert one.needed_bytes is not None
        if one.what == "shape":
            assert fits(with_activations(record, one.needed_bytes))
            assert not fits(with_activations(record, one.needed_bytes + 1))
        else:
            assert one.what == "deviceMemory"
            assert fits(with_device_memory(record, one.needed_bytes))
            assert not fits(with_device_memory(record, one.needed_bytes - 1))
