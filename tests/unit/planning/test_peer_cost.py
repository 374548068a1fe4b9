"""Section 6 of PLANNING.md, number by number: one host copy, three places for a layer, and what it all reduces to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from examples import GIB, component, interval, layerwise, made, offload, resident
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import cost, costs
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord

PASSES, LATENCY = 3, 2e-5
HOST, PAGEABLE, PEER = 25e9, 6e9, 400e9
rule = settings(max_examples=40, deadline=None, derandomize=True)


def place(*entries: ComponentPlacement) -> Placement:
    return Placement(components=entries)


def replica(ranks: int = 2, peers: float = PEER, *, seconds: float = 0.0, **limits: Any) -> CalibrationRecord:
    """Four layers of 1 GiB and half a GiB of loose weights on equal cards."""
    return made(
        [component("denoiser", 0.5, [1, 1, 1, 1])],
        [interval("denoiser", PASSES, 0.25, layers=4, seconds=seconds, loose=0.0), interval(None, 1, 0.125, loose=0.0)],
        ranks=ranks,
        peers=peers,
        **({"card": 100, "contention": 1.0} | limits),
    )


def entry(resident_layers: int, sharded: int | None, pins: Sequence[int], **rest: Any) -> ComponentPlacement:
    return layerwise("denoiser", resident_layers, pins, sharded_layers=sharded, **rest)


@pytest.mark.parametrize(
    ("ranks", "placed", "always", "ring", "host", "locked"),
    [
        (2, entry(0, 4, (0, 0)), 0.5 + 4 / 2, 2, 0, 0),
        (2, entry(1, 2, (1, 1)), 0.5 + 1 + 2 / 2, 2, 1, 1),
        (2, entry(1, 2, (1, 0), slots=3), 0.5 + 1 + 2 / 2, 3, 1, 0.5),
        (4, entry(0, 1, (3, 3, 3, 3)), 0.5 + 1 / 4, 2, 3, 3),
        (4, entry(4, None, (0,) * 4), 4.5, 0, 0, 0),
        (2, entry(3, 1, (0, 0)), 0.5 + 3 + 1 / 2, 2, 0, 0),
        (2, entry(0, None, (4, 2), loose="Forward"), 0, 0.5 + 2, 4.5, 3),
        (2, entry(4, None, (2, 2), lifetime="Forward"), 0.5, 4, 4, 2),
        (2, offload("denoiser", [GIB, GIB]), 0, 4.5, 4.5, 1),
        (4, offload("denoiser", [GIB, 0, 0, 0]), 0, 4.5, 4.5, 0.25),
        (2, resident("denoiser"), 4.5, 0, 0, 0),
    ],
)
def test_bytes(ranks: int, placed: ComponentPlacement, always: float, ring: float, host: float, locked: float) -> None:
    priced = cost(replica(ranks), place(placed))
    assert priced.feasible, priced.violations
    assert priced.device_bytes[0] == (int((0.25 + always + ring) * GIB),) * ranks
    assert priced.device_bytes[1] == (int((0.125 + always) * GIB),) * ranks
    assert priced.host_bytes == {"node-0": host * GIB}
    assert priced.locked_bytes == {"node-0": locked * GIB}


def test_a_share_is_cut_at_multiples_of_256_bytes_and_the_largest_is_charged() -> None:
    data = replica(2).to_json()
    data["components"][0]["groups"][0]["layerBytes"] = [256 * 3, 256 * 5, 256 * 2, 256]
    priced = cost(CalibrationRecord.from_json(data), place(entry(0, 4, (0, 0))))
    shards, ring = 256 * (2 + 3 + 1 + 1), 2 * 256 * 5
    assert priced.device_bytes[0] == (GIB // 4 + GIB // 2 + shards + ring,) * 2


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("placed", "a_layer"),
    [
        (lambda n: entry(0, None, (4,) * n), lambda n: LATENCY + GIB / (n * HOST)),
        (lambda n: entry(0, None, (0,) * n), lambda n: LATENCY + GIB / (n * PAGEABLE)),
        (lambda n: entry(0, None, (4,) * (n - 1) + (0,)), lambda n: LATENCY + GIB / (n * PAGEABLE)),
        (lambda n: entry(0, 4, (0,) * n), lambda n: GIB * (n - 1) / n / PEER),
    ],
    ids=["streamed", "pageable", "one rank has not pinned", "sharded"],
)
def test_seconds_where_nothing_hides_a_copy(placed: Any, a_layer: Any, ranks: int) -> None:
    priced = cost(replica(ranks), place(placed(ranks)))
    assert priced.seconds == pytest.approx(PASSES * 4 * a_layer(ranks))


def test_the_links_overlap_and_slots_are_taken_in_running_order() -> None:
    """Layers 0 and 2 are sharded, 3 is streamed, 1 is resident; two slots, a pass, nothing slowed."""
    record = replica(2, seconds=0.01)
    record = record.model_copy(
        update={
            "intervals": tuple(
                one.model_copy(update={"runs": tuple(run.model_copy(update={"passes": 1}) for run in one.runs)})
                for one in record.intervals
            )
        }
    )
    swap, fetch = GIB / 2 / PEER, LATENCY + GIB / (2 * HOST)
    first = swap + 0.01  # layer 0; its slot is free for the fetch of layer 3 then
    second = first + 0.01 + 0.01  # layers 1 and 2, whose swap is long over
    assert cost(record, place(entry(1, 2, (1, 1)))).seconds == pytest.approx(max(second, first + fetch) + 0.01)
    slow = replica(2, GIB / 2 / 0.5, seconds=0.01).model_copy(update={"intervals": record.intervals})
    first = 0.5 + 0.01  # the peer link is busy with layer 2 until 1.0, and then with the other half of layer 3
    assert cost(slow, place(entry(1, 2, (1, 1)))).seconds == pytest.approx(1.5 + 0.01)


def test_no_layer_is_fetched_faster_than_its_other_parts_cross() -> None:
    record = replica(4, peers=HOST)
    assert cost(record, place(entry(0, None, (4,) * 4))).seconds == pytest.approx(PASSES * 4 * GIB * 0.75 / HOST)


def test_a_swap_slows_compute_as_a_fetch_does() -> None:
    record = replica(2, seconds=1.0, contention=1.5)
    swaps = PASSES * 4 * GIB / 2 / PEER
    assert cost(record, place(entry(0, 4, (0, 0)))).seconds == pytest.approx(
        PASSES * 4.0 + swaps * (1 - 1 / 1.5) + (GIB / 2 / PEER) / 1.5
    )


def test_a_load_is_not_shared_out_and_only_the_own_share_is_locked() -> None:
    priced = cost(replica(2), place(offload("denoiser", [2 * GIB, 2 * GIB])))
    assert priced.seconds == pytest.approx(GIB / HOST + 3.5 * GIB / PAGEABLE)


def test_all_ranks_copy_at_the_pace_of_the_slowest() -> None:
    data = replica(2).to_json()
    data["ranks"][1]["link"] |= {"pinnedBytesPerSecond": 10e9, "latencySeconds": 1e-3}
    data["ranks"][0]["peerBytesPerSecond"] = 4 * PEER
    record = CalibrationRecord.from_json(data)
    assert cost(record, place(entry(0, None, (4, 4)))).seconds == pytest.approx(PASSES * 4 * (1e-3 + GIB / 20e9))
    assert cost(record, place(entry(0, 4, (0, 0)))).seconds == pytest.approx(PASSES * 4 * GIB / 2 / PEER)


@pytest.mark.parametrize(
    ("record", "placed", "words"),
    [
        (replica(2, peers=0), entry(1, 1, (0, 0)), "shardedLayers needs peer access between several ranks"),
        (replica(1), entry(1, 1, (0,)), "shardedLayers needs peer access between several ranks"),
        (replica(2), entry(1, 1, (0, 0), lifetime="Forward"), "its lifetime must be Permanent, not Forward"),
        (replica(2), entry(2, 3, (0, 0)), "3 shardedLayers of the 2 layers that are not resident"),
        (replica(2), entry(1, 2, (2, 0)), "pinnedLayers of rank 0 is 2, of 1 that keep a host copy"),
    ],
)
def test_what_is_not_allowed_is_a_violation(record: CalibrationRecord, placed: ComponentPlacement, words: str) -> None:
    (violation,) = cost(record, place(placed)).violations
    assert words in violation.message and "group blocks of component denoiser" in violation.message


def any_entry(choose: random.Random, ranks: int, *, shards: bool) -> ComponentPlacement:
    if choose.random() < 0.2:
        return offload("denoiser", [choose.randrange(5 * GIB) for _ in range(ranks)])
    kept = choose.randrange(5)
    lifetime = choose.choice(["Permanent", "Forward"])
    sharded = choose.randrange(5 - kept) if shards and lifetime == "Permanent" else None
    most = 4 if lifetime == "Forward" else 4 - kept - (sharded or 0)
    more = {"lifetime": lifetime, "policy": choose.choice(["Strided", "Leading"]), "slots": choose.choice([2, 3])}
    return entry(kept, sharded, [choose.randint(0, most) for _ in range(ranks)], **more)


chance = st.randoms(use_true_random=False)


@rule
@given(chance)
def test_without_peers_on_every_rank_of_one_node_nothing_changes(choose: random.Random) -> None:
    ranks = choose.choice([1, 2, 3])
    record = replica(ranks, peers=0, seconds=0.02)
    placed = place(any_entry(choose, ranks, shards=False))
    data = record.to_json()
    for rank in data["ranks"][: max(1, ranks - 1)]:
        rank["peerBytesPerSecond"] = PEER
    assert cost(CalibrationRecord.from_json(data), placed) == cost(record, placed)
    if ranks > 1:
        data["ranks"][-1] |= {"peerBytesPerSecond": PEER, "node": "node-1"}
        data["nodes"].append(data["nodes"][0] | {"name": "node-1"})
        apart = CalibrationRecord.from_json(data)
        assert cost(apart, placed).seconds == cost(record, placed).seconds
        assert sum(cost(apart, placed).host_bytes.values()) == cost(record, placed).host_bytes["node-0"]


@rule
@given(chance)
def test_faster_peers_are_never_slower_and_bytes_are_counted_once(choose: random.Random) -> None:
    ranks, seconds = choose.choice([2, 3, 5]), choose.choice([0.0, 0.005, 0.05])
    slow = choose.choice([1e9, 30e9, 400e9])
    placed = place(any_entry(choose, ranks, shards=True))
    limits = {"seconds": seconds, "contention": choose.choice([1.0, 1.1])}
    first = cost(replica(ranks, slow, **limits), placed)
    then = cost(replica(ranks, slow * choose.uniform(1, 20), **limits), placed)
    assert then.seconds <= first.seconds * (1 + 1e-9)
    assert (then.device_bytes, then.host_bytes, then.locked_bytes) == (
        first.device_bytes,
        first.host_bytes,
        first.locked_bytes,
    )
    (alone,) = costs(replica(ranks, slow, **limits), [placed])
    assert alone.seconds == pytest.approx(first.seconds, rel=1e-11)
    if all(not group.sharded_layers for one in placed.components for group in one.groups or ()):
        each = cost(replica(ranks, 0, **limits), placed)
        assert first.device_bytes == each.device_bytes
        assert first.host_bytes["node-0"] * ranks == each.host_bytes["node-0"]


def test_no_shards_are_spelled_in_two_ways() -> None:
    record = replica(2, seconds=0.01)
    assert cost(record, place(entry(1, 0, (2, 2)))) == cost(record, place(entry(1, None, (2, 2))))
