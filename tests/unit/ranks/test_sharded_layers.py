"""Layers in three places on ranks that are threads: every move, every failure of one, and what can be seen between."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from circle_of_threads import circles, together

from stowplan_agent.accelerators.emulated import EmulatedCard
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.neighbourhood import Neighbourhood
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.shares import share
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement, Placement, sharded_layers, streamed_layers
from unit.weights.stacks import Stack, layerwise, offload, resident
from unit.weights.test_failures import Faulty

ENTRIES = {
    "sharded": layerwise({"first": 0, "second": 0}, sharded=4, pinned=0),
    "some": layerwise({"first": 1, "second": 1}, sharded=2, pinned=1, slots=3),
    "others": layerwise({"first": 2, "second": 0}, sharded=1, pinned=2, policy="Leading", loose="Forward"),
    "streamed": layerwise({"first": 0, "second": 0}, pinned=4),
    "resident": resident(),
    "offload": offload(pinned=9000),
}
X = torch.rand(3, 16, generator=torch.Generator().manual_seed(2))


class Card(Faulty):
    """Memory for the peers' access and reads of files fail too."""

    def hold(self, nbytes: int) -> None:
        self._count(torch.OutOfMemoryError("out of memory"))
        super().hold(nbytes)

    def fill(self, *args: Any, **kwargs: Any) -> Any:
        self._count(OSError("the file cannot be read"))
        return super().fill(*args, **kwargs)


class Ranks:
    """Engines of several ranks over stacks that are the same, each on a thread while it works."""

    def __init__(self, ranks: int = 2, seed: ComponentPlacement | None = None, capacity: int = 64 << 20) -> None:
        self.ranks = ranks
        board, seats = Board.make(ranks), circles(ranks, patience=20.0)
        self.stacks = [Stack() for _ in range(ranks)]
        self.expected = Stack()(X).detach()
        self.cards = [Card(EmulatedCard(capacity_bytes=capacity, outside_bytes=0)) for _ in range(ranks)]
        self.engines = []
        for card, seat in zip(self.cards, seats, strict=True):
            link = EmulatedPeerLink(card, seat, board, latency=0.0, patience=20.0)
            given = partial(Neighbourhood, circle=seat, accelerator=card, link=link, piece_bytes=1000)
            self.engines.append(WeightsEngine(card, neighbours=given))
        entry = seed or offload()
        self.all(lambda rank: self.engines[rank].adopt({"part": self.stacks[rank]}, lambda _: placed(entry)))

    def all(self, work: Callable[[int], Any]) -> list[Any]:
        found = together(self.ranks, work)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return found

    def place(self, name: str, *, commit: bool = True) -> None:
        def go(rank: int) -> None:
            self.engines[rank].place(ENTRIES[name])
            self.engines[rank].check()
            if commit:
                self.engines[rank].commit()
                self.engines[rank].check()

        self.all(go)

    def right(self) -> bool:
        @torch.no_grad()
        def run(rank: int) -> bool:
            engine, stack = self.engines[rank], self.stacks[rank]
            with engine.request():
                found = [stack(X) for _ in range(2)]
            engine.check()
            return all(torch.equal(one, self.expected) for one in found)

        return all(self.all(run))

    def held(self, rank: int) -> tuple[int, int]:
        """Bytes on the device, and in host memory."""
        ledger = self.engines[rank].ledger
        return ledger.total(Tier.DEVICE), ledger.total(Tier.PINNED) + ledger.total(Tier.PAGEABLE)


def placed(entry: ComponentPlacement) -> Placement:
    return Placement(components=(entry,))


def planned(entry: ComponentPlacement, engine: WeightsEngine, ranks: int, rank: int) -> tuple[int, int]:
    """What an entry has between requests, from the contract alone: device, and host less the loose weights."""
    (part,) = engine.describe()
    if entry.mode != "Layerwise":
        whole = part.loose_bytes + sum(sum(group.layer_bytes) for group in part.groups)
        shares = sum(share(nbytes, ranks, rank).nbytes for group in part.groups for nbytes in group.layer_bytes)
        return (whole, 0) if entry.mode == "Resident" else (0, shares)
    device, host = part.loose_bytes if entry.loose_lifetime == "Permanent" else 0, 0
    for group, layers in zip(entry.groups or (), part.groups, strict=True):
        sharded = group.sharded_layers or 0
        shards = sharded_layers(len(layers.layer_bytes), group.resident_layers, sharded, group.policy)
        streamed = streamed_layers(len(layers.layer_bytes), group.resident_layers + sharded, group.policy)
        for index, nbytes in enumerate(layers.layer_bytes):
            own = share(nbytes, ranks, rank).nbytes
            device += own if index in shards else 0 if index in streamed else nbytes
            host += own if index in streamed else 0
    return device, host


@pytest.mark.parametrize("ranks", [2, 4])
def test_layers_in_any_place_are_bit_equal_and_take_what_is_planned_and_no_more_on_the_way(ranks: int) -> None:
    crew, order = Ranks(ranks), random.Random(ranks)
    names = list(ENTRIES)
    moves = ["sharded", "resident", "sharded", "some", "others", "streamed", "sharded", "offload", "some"]
    before = "offload"
    for name in [*moves, *order.choices(names, k=4)]:
        committed = order.random() < 0.7
        for card in crew.cards:
            card.reset_peaks()
        ends = [
            max(planned(ENTRIES[one], crew.engines[0], ranks, rank)[0] for one in (before, name))
            for rank in range(ranks)
        ]
        crew.place(name, commit=committed)
        for rank in range(ranks):
            assert crew.cards[rank].counters().peak <= ends[rank]
        assert crew.right()
        before = name
        if committed:
            loose = crew.engines[0].describe()[0].loose_bytes
            for rank in range(ranks):
                device, host = planned(ENTRIES[name], crew.engines[0], ranks, rank)
                own = loose if ENTRIES[name].mode == "Offload" or ENTRIES[name].loose_lifetime == "Forward" else 0
                assert crew.held(rank) == (device, host + own)
    crew.place("sharded")
    fresh = Ranks(ranks, ENTRIES["sharded"])
    fresh.all(lambda rank: fresh.engines[rank].commit())
    assert fresh.right()
    for rank in range(ranks):
        assert crew.engines[rank].snapshot() == fresh.engines[rank].snapshot()
        assert crew.engines[rank].entry("part").groups[0].sharded_layers == 4  # type: ignore[index]


def test_layers_are_loaded_straight_into_shards() -> None:
    crew = Ranks(2, ENTRIES["sharded"])
    for rank in range(2):
        device, host = planned(ENTRIES["sharded"], crew.engines[rank], 2, rank)
        assert crew.held(rank) == (device, host)
        assert crew.cards[rank].counters().peak == device
    assert crew.right()


@torch.no_grad()
def test_a_state_is_whole_on_one_rank_alone_and_takes_memory_until_the_component_runs_again() -> None:
    crew = Ranks(2, ENTRIES["sharded"])
    crew.all(lambda rank: crew.engines[rank].commit())
    before = crew.held(0)
    assert torch.isnan(crew.stacks[0].first[0].linear.weight).all()
    assert crew.stacks[0].first[0].linear.weight.shape == (16, 16)
    wanted, found = Stack().state_dict(), crew.stacks[0].state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted if not key.endswith("passes"))
    crew.engines[0].check()
    first, second = crew.engines[0].describe()[0].groups
    assert crew.held(0) == (before[0], before[1] + sum(first.layer_bytes[1:]) + sum(second.layer_bytes))
    assert crew.right()
    assert crew.held(0) == before
    assert all(torch.equal(found[key], wanted[key]) for key in wanted if not key.endswith("passes"))


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("resident", "sharded"),
        ("sharded", "resident"),
        ("sharded", "streamed"),
        ("streamed", "some"),
        ("some", "others"),
    ],
)
def test_a_move_that_fails_on_one_rank_anywhere_is_undone_on_all(before: str, after: str, committed: bool) -> None:
    crew = Ranks(2)
    crew.place(before, commit=committed)
    found = [engine.snapshot() for engine in crew.engines]

    def move(rank: int) -> None:
        crew.engines[rank].place(ENTRIES[after])

    for number in range(1, 200):
        rank = number % 2
        crew.cards[rank].calls, crew.cards[rank].fail_at = 0, number
        outcome = together(2, move)
        crew.cards[rank].fail_at = 0
        if not any(isinstance(one, Exception) for one in outcome):
            break
        assert all(isinstance(one, Exception) for one in outcome), (number, outcome)
        for one in range(2):
            crew.engines[one].check()
            assert crew.engines[one].snapshot() == found[one], number
    assert crew.right()
    assert number > 3
    crew.place(before)
    assert crew.right()
