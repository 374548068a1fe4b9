"""The small print of PLANNING.md, section 3, number by number."""

from __future__ import annotations

from itertools import islice

import pytest
from brute import placements
from examples import GIB, MIB, component, interval, layerwise, made, offload, placement_of, record_of, resident

from stowplan_agent.planning import cost, costs, seed_placement, with_device_memory, with_host_memory
from stowplan_api.placement import ComponentPlacement, Placement, streamed_layers
from stowplan_api.record import CalibrationRecord, Component, Fixed


def place(*entries: ComponentPlacement) -> Placement:
    return Placement(components=entries)


@pytest.mark.parametrize(
    ("layers", "resident_layers", "policy", "streamed"),
    [
        (6, 0, "Strided", (0, 1, 2, 3, 4, 5)),
        (6, 3, "Strided", (1, 3, 5)),
        (40, 36, "Strided", (9, 19, 29, 39)),
        (6, 4, "Leading", (4, 5)),
        (6, 6, "Strided", ()),
    ],
)
def test_streamed_layers(layers: int, resident_layers: int, policy: str, streamed: tuple[int, ...]) -> None:
    assert streamed_layers(layers, resident_layers, policy) == streamed  # type: ignore[arg-type]


def two_components(**limits: float) -> CalibrationRecord:
    return made(
        [component("encoder", 1), component("denoiser", 0.5, [0.5, 0.25, 0.5, 1.0])],
        [interval("encoder", 1, 0.25), interval(None, 1, 0.125), interval("denoiser", 5, 0.5, layers=4)],
        **({"card": 100} | limits),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("entry", "elsewhere", "at_home", "host", "locked"),
    [
        (resident("denoiser"), 2.75, 2.75, 0, 0),
        (offload("denoiser", [GIB]), 0, 2.75, 2.75, 1),
        (layerwise("denoiser", 0, [4]), 0.5, 0.5 + 2 * 1, 2.25, 2.25),
        (layerwise("denoiser", 0, [1], slots=3), 0.5, 0.5 + 3 * 1, 2.25, 0.5),
        (layerwise("denoiser", 2, [1], policy="Leading"), 0.5 + 0.75, 0.5 + 0.75 + 2, 1.5, 0.5),
        (layerwise("denoiser", 2, [3], policy="Leading", lifetime="Forward"), 0.5, 3.25, 2.25, 2),
        (layerwise("denoiser", 0, [0], loose="Forward"), 0, 2.5, 2.75, 0),
        (layerwise("denoiser", 4), 2.75, 2.75, 0, 0),
    ],
)
def test_bytes(entry: ComponentPlacement, elsewhere: float, at_home: float, host: float, locked: float) -> None:
    priced = cost(two_components(), place(resident("encoder"), entry))
    assert priced.feasible
    held = [[bytes_ / GIB for bytes_ in ranks] for ranks in priced.device_bytes]
    assert held == [[1.25 + elsewhere], [1.125 + elsewhere], [1.5 + at_home]]
    assert priced.host_bytes["node-0"] == host * GIB
    assert priced.locked_bytes["node-0"] == locked * GIB


def test_a_prefetch_holds_and_hides_in_the_interval_before() -> None:
    record = made(
        [component("encoder", 1), component("denoiser", 1)],
        [interval("encoder", 1, 0, loose=0.03), interval("denoiser", 2, 0, loose=0.02)],
        card=100,
    )
    seconds = []
    for early in (False, True):
        priced = cost(record, place(resident("encoder"), offload("denoiser", [GIB], prefetch=early)))
        assert priced.device_bytes[0][0] == (2 if early else 1) * GIB
        seconds.append(priced.seconds)
    assert seconds[0] == pytest.approx(0.03 + GIB / 25e9 + 0.04)
    assert seconds[1] == pytest.approx(0.03 + (GIB / 25e9 - 0.03) + 0.04)


def test_a_prefetch_cannot_use_the_link_while_it_is_busy() -> None:
    record = made(
        [component("encoder", 1), component("denoiser", 1)],
        [interval("encoder", 1, 0, loose=0.1), interval("denoiser", 1, 0, loose=0.02)],
        card=100,
    )
    busy = cost(record, place(offload("encoder", [GIB]), offload("denoiser", [GIB], prefetch=True))).seconds
    assert busy == pytest.approx(GIB / 25e9 + 0.1 + 0.02)
    first = cost(record, place(offload("encoder", [GIB], prefetch=True), resident("denoiser"))).seconds
    assert first == pytest.approx(GIB / 25e9 + 0.1 + 0.02), "nothing hides before interval 0"


def test_a_load_is_paid_where_the_component_starts() -> None:
    twice = made(
        [component("vae", 1)],
        [interval("vae", 1, 0), interval("vae", 1, 0), interval(None, 1, 0), interval("vae", 1, 0)],
        card=100,
    )
    assert cost(twice, place(offload("vae"))).seconds == pytest.approx(0.04 + 2 * GIB / 6e9)
    skipped = made(
        [component("vae", 1)], [interval("vae", 1, 0), interval(None, 0, 0), interval("vae", 1, 0)], card=100
    )
    assert cost(skipped, place(offload("vae"))).seconds == pytest.approx(0.02 + GIB / 6e9)


def test_forward_loose_weights_are_pageable_and_the_forward_set_is_pinned_last() -> None:
    record = made(
        [component("denoiser", 0.5, [0.5, 0.5])], [interval("denoiser", 1, 0, layers=2)], card=100, contention=1
    )
    entry = layerwise("denoiser", 2, [1], lifetime="Forward", loose="Forward")
    assert cost(record, place(entry)).seconds == pytest.approx(0.03 + GIB / 6e9 + 0.5 * GIB / 25e9)


def test_the_slowest_rank_counts() -> None:
    record = record_of("hard-7-unequal-pins-2-ranks.json")
    entries = [resident(one.name) for one in record.components if one.name != "transformer"]

    def seconds(pins: tuple[int, int]) -> float:
        group = layerwise("transformer", 0, pins).groups
        assert group is not None
        renamed = group[0].model_copy(update={"name": "transformer_blocks"})
        entry = ComponentPlacement(name="transformer", mode="Layerwise", groups=(renamed,))
        return cost(record, place(*entries, entry)).seconds

    assert seconds((48, 0)) < seconds((24, 24)) < seconds((0, 48))


def test_workloads_are_averaged_by_weight_and_each_must_fit() -> None:
    record = record_of("small/pins-02.json")
    everything = place(*(resident(one.name) for one in record.components))
    parts = []
    for index, _ in enumerate(record.workloads):
        weights = [1e9 if other == index else 1e-9 for other in range(len(record.workloads))]
        alone = tuple(w.model_copy(update={"weight": x}) for w, x in zip(record.workloads, weights, strict=True))
        parts.append(cost(record.model_copy(update={"workloads": alone}), everything).seconds)
    priced = cost(record, everything)
    assert priced.seconds == pytest.approx(0.75 * parts[0] + 0.25 * parts[1])
    for index, interval_ in enumerate(record.intervals):
        largest = max(run.activation_bytes[0] for run in interval_.runs)
        weights_held = sum(one.total_bytes() for one in record.components)
        assert priced.device_bytes[index][0] == record.ranks[0].outside_bytes + largest + weights_held


@pytest.mark.parametrize(
    ("card", "changes", "reserve"),
    [
        (10, {}, 512 * MIB),
        (100, {}, 2 * GIB),
        (100, {"extrapolated": True}, 10 * GIB),
    ],
)
def test_the_reserve(card: int, changes: dict[str, bool], reserve: int) -> None:
    weights = card * GIB - reserve
    record = made([component("denoiser", 0)], [interval("denoiser", 1, 0)], card=card)
    whole = record.components[0].model_copy(update={"loose_bytes": weights})
    fits = record.model_copy(update={"components": (whole,)} | changes)
    assert cost(fits, place(resident("denoiser"))).feasible
    over = whole.model_copy(update={"loose_bytes": weights + 1})
    (violation,) = cost(fits.model_copy(update={"components": (over,)}), place(resident("denoiser"))).violations
    assert (violation.constraint, violation.interval, violation.rank, violation.short_bytes) == ("device", 0, 0, 1)


def test_an_adaptive_interval_has_the_larger_reserve_and_a_given_one_replaces_both() -> None:
    record = made([component("denoiser", 91)], [interval("denoiser", 1, 0)], card=100)
    adaptive = tuple(one.model_copy(update={"adaptive": True}) for one in record.intervals)
    wary = record.model_copy(update={"intervals": adaptive})
    assert cost(record, place(resident("denoiser"))).feasible
    assert not cost(wary, place(resident("denoiser"))).feasible
    given = tuple(rank.model_copy(update={"reserve_bytes": 0}) for rank in record.ranks)
    assert cost(wary.model_copy(update={"ranks": given}), place(resident("denoiser"))).feasible


def test_one_violation_for_each_broken_limit() -> None:
    record = two_components(card=3, pinnable=1, host=2, reserve=0)
    priced = cost(record, place(offload("encoder", [GIB]), layerwise("denoiser", 0, [4], slots=3)))
    shorts = {(one.constraint, one.interval): one.short_bytes for one in priced.violations}
    assert shorts == {("device", 2): GIB, ("pinned", None): 2.25 * GIB, ("host", None): 1.25 * GIB}
    assert not priced.feasible and priced.seconds > 0


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ((resident("encoder"), layerwise("denoiser", 5)), "5 residentLayers of 4"),
        ((resident("encoder"), layerwise("denoiser", 3, [2])), "of 1 that keep a host copy"),
        ((resident("encoder"), layerwise("denoiser", 3, [0, 0])), "pinnedLayers has 2 entries; give 1"),
        ((offload("encoder", [GIB + 1]), resident("denoiser")), "pinnedBytes of rank 0"),
        ((resident("encoder"),), "component denoiser has no entry"),
        ((resident("encoder"), resident("denoiser"), resident("vae")), "component vae is not in the record"),
        ((layerwise("encoder", 0), resident("denoiser")), "no repeated layers"),
    ],
)
def test_what_is_not_allowed_is_a_violation(entries: tuple[ComponentPlacement, ...], words: str) -> None:
    priced = cost(two_components(), place(*entries))
    assert not priced.feasible
    assert any(words in one.message for one in priced.violations)
    assert all(one.constraint == "entry" for one in priced.violations)


def test_an_unknown_group_and_a_missing_one() -> None:
    group = layerwise("denoiser", 0).groups
    assert group is not None
    wrong = ComponentPlacement(
        name="denoiser", mode="Layerwise", groups=(group[0].model_copy(update={"name": "layers"}),)
    )
    messages = [one.message for one in cost(two_components(), place(resident("encoder"), wrong)).violations]
    assert len(messages) == 2


def test_a_fixed_component_keeps_its_mode() -> None:
    record = two_components()
    fixed = record.components[0].model_copy(update={"fixed": Fixed(mode="Resident", reason="it is read elsewhere")})
    record = record.model_copy(update={"components": (fixed, record.components[1])})
    (violation,) = cost(record, place(offload("encoder"), resident("denoiser"))).violations
    assert violation.component == "encoder" and "it is read elsewhere" in violation.message


def test_other_hardware() -> None:
    record = two_components(card=10, pinnable=30, host=40)
    assert with_device_memory(record, 7).ranks[0].capacity_bytes == 7
    node = with_host_memory(record, 10 * GIB + 1).nodes[0]
    assert (node.host_bytes, node.pinnable_bytes) == (10 * GIB + 1, (10 * GIB + 1) * 3 // 4)


def test_the_current_placements_fit() -> None:
    for name in ("hard-8-no-safe-order-48gib", "hard-9-nothing-to-gain-h200", "small/moves-02"):
        assert cost(record_of(f"{name}.json"), placement_of(f"{name}.current.json")).feasible


def test_the_seed_has_the_smallest_peak() -> None:
    parts = [component("encoder", 1, [0.5] * 8), component("small", 0.1, [1.0]), component("vae", 0.3)]
    components = [Component.model_validate(one) for one in parts]
    seed = seed_placement(components, 2)
    assert [entry.mode for entry in seed.components] == ["Layerwise", "Offload", "Offload"]
    record = made(parts, [interval("encoder", 1, 0, layers=8)], card=100, ranks=2)
    priced = cost(record, seed)
    assert priced.feasible and priced.locked_bytes == {"node-0": 0}
    assert priced.device_bytes[0][0] == 2 * GIB


@pytest.mark.parametrize("name", ["small/shares-11.json", "small/tie-02.json", "small/pins-02.json"])
def test_many_prices_at_once_are_the_same_prices(name: str) -> None:
    record = record_of(name)
    some = [placement for placement, _ in islice(placements(record), 0, 400, 7)]
    for placement, priced in zip(some, costs(record, some), strict=True):
        alone = cost(record, placement)
        assert priced.seconds == pytest.approx(alone.seconds, rel=1e-11)
        assert priced.workload_seconds == pytest.approx(alone.workload_seconds, rel=1e-11)
        same = {"seconds": alone.seconds, "workload_seconds": alone.workload_seconds}
        assert priced.model_copy(update=same) == alone
