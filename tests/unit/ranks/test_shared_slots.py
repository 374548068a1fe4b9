"""Slots and shards: all ranks take them or none does, and layers that lie in shards are whole when they run."""

from __future__ import annotations

import pytest
import torch
from circle_of_threads import circles, together

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import RanksError
from stowplan_agent.ranks.peers import Shards, give_back_slots, take_slots
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.shares import share
from stowplan_agent.weights.ledger import Ledger, Tier

LAYER = 100_000


class Numbers:
    """A layer as a source."""

    def __init__(self, number: int, nbytes: int = LAYER) -> None:
        self.nbytes = nbytes
        self.all = (torch.arange(nbytes) * 13 + number).to(torch.uint8)
        self.read_bytes = 0

    def read(self, start: int, target: torch.Tensor) -> None:
        target.copy_(self.all[start : start + target.nbytes])
        self.read_bytes += target.nbytes


class Broken(Numbers):
    def read(self, start: int, target: torch.Tensor) -> None:
        raise OSError("layer.safetensors: the file ends before byte 7")


class Rank:
    def __init__(self, circle: Circle, board: Board, capacity: int = 16 << 20) -> None:
        self.circle = circle
        self.accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=capacity))
        self.link = EmulatedPeerLink(self.accelerator, circle, board)
        self.ledger = Ledger()
        self.shards = Shards("denoiser", self.accelerator, self.link, circle, self.ledger)

    @property
    def held(self) -> int:
        return self.accelerator.counters().weights


def crew(ranks: int, *capacities: int) -> list[Rank]:
    board = Board.make(ranks)
    sizes = capacities or (16 << 20,) * ranks
    return [Rank(circle, board, size) for circle, size in zip(circles(ranks), sizes, strict=True)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_layers_in_shards_are_whole_when_they_run_and_each_rank_has_read_its_share(ranks: int) -> None:
    members = crew(ranks)

    def run(rank: int) -> tuple[list[bool], int, int]:
        member = members[rank]
        layers = {f"layer {number}": Numbers(number, LAYER + 1000 * number) for number in range(4)}
        shards = member.shards
        shards.take(dict(list(layers.items())[:1]))
        shards.take(dict(list(layers.items())[1:]))
        exchange, slots = take_slots("ring", [LAYER + 3000] * 2, member.accelerator, member.link, member.circle)
        right = []
        for index, (key, source) in enumerate([*layers.items(), *layers.items()]):
            member.accelerator.wait(shards.assemble(key, exchange, index % 2, after=None))
            right.append(torch.equal(slots[index % 2][: source.nbytes], source.all))
        held = member.ledger.total(Tier.DEVICE)
        give_back_slots(exchange, slots, member.link)
        whole = torch.empty(LAYER + 2000, dtype=torch.uint8)
        if rank == 1:  # nobody else need know
            shards.read("layer 2", whole)
            right.append(torch.equal(whole, layers["layer 2"].all))
        shards.give_back(["layer 1", "layer 3"])
        assert ["layer 0" in shards, "layer 1" in shards] == [True, False]
        shards.give_back(["layer 0", "layer 2"])
        assert member.ledger.total(Tier.DEVICE) == 0
        return right, held, sum(source.read_bytes for source in layers.values())

    own = [sum(share(LAYER + 1000 * number, ranks, rank).nbytes for number in range(4)) for rank in range(ranks)]
    expected = [([True] * (9 if rank == 1 else 8), nbytes, nbytes) for rank, nbytes in enumerate(own)]
    assert together(ranks, run) == expected
    assert [member.held for member in members] == [0] * ranks


def test_a_full_card_fails_all_ranks_and_none_holds_anything() -> None:
    members = crew(2, 16 << 20, LAYER // 2 + (2 << 20))

    def slots(rank: int) -> object:
        member = members[rank]
        return take_slots("ring", [1 << 20] * 2, member.accelerator, member.link, member.circle)

    def shards(rank: int) -> object:
        member = members[rank]
        return member.shards.take({number: Numbers(number, 1 << 20) for number in range(4)})

    for what, name in ((slots, "slots of ring"), (shards, "shards of denoiser")):
        found = together(2, what)
        assert isinstance(found[1], torch.OutOfMemoryError)
        assert isinstance(found[0], RanksError)
        assert str(found[0]).startswith(f"rank 1 could not take the {name}: ")
        assert [member.held for member in members] == [0, 0]


def test_a_file_that_one_rank_cannot_read_fails_all_ranks_and_none_holds_anything() -> None:
    members = crew(2)

    def run(rank: int) -> object:
        member = members[rank]
        return member.shards.take({0: Numbers(0), 1: Broken(1) if rank == 0 else Numbers(1)})

    found = together(2, run)
    assert isinstance(found[0], OSError)
    assert str(found[1]) == (
        "rank 0 could not fill the shards of denoiser: layer.safetensors: the file ends before byte 7"
    )
    assert [member.held for member in members] == [0, 0]


def test_ranks_agree_on_what_their_layers_are() -> None:
    members = crew(2)
    for said, same in ((["one", "of all"], True), (["one", "of rank"], False)):

        def run(rank: int, said: list[str] = said, same: bool = same) -> bool:
            return members[rank].shards.agree([said[0], said[1] if same else f"{said[1]} {rank}"])

        assert together(2, run) == [same, same]
