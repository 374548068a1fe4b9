"""Layers over the links of all ranks, on emulated cards in threads of one process: bytes, seconds, who holds whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from circle_of_threads import circles, together

from stowplan_agent.accelerators.emulated import POISON, EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.errors import RankLost, RanksError
from stowplan_agent.ranks.peers import Exchange, measure_peer_rate
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.shares import share

LAYER = 409_600
CARD = EmulatedCard(capacity_bytes=16 << 20, pinned_rate=4e8, latency=0.0, contention=1.0)
RATE = 2.8e9


def layer(number: int, nbytes: int = LAYER) -> torch.Tensor:
    return (torch.arange(nbytes) * 7 + number).to(torch.uint8)


class Rank:
    """One emulated card with its link, and a ring of slots on it."""

    def __init__(self, number: int, circle: Any, board: Board, delay: Callable[[], None] | None = None) -> None:
        self.number = number
        self.accelerator = EmulatedAccelerator(CARD, delay=delay)
        self.link = EmulatedPeerLink(self.accelerator, circle, board, rate=RATE, latency=0.0, patience=20.0)

    def ring(self, slots: int, piece_bytes: int = LAYER) -> tuple[Exchange, list[torch.Tensor]]:
        buffers = [self.link.allocate(LAYER) for _ in range(slots)]
        return Exchange("ring", buffers, self.accelerator, self.link, piece_bytes=piece_bytes), buffers

    def copy_alone(self, source: torch.Tensor, buffer: torch.Tensor, free: Any) -> Any:
        return self.accelerator.copy(buffer, source, pinned=True, after=free)

    def stream(self, count: int, compute: float, slots: int = 2, piece_bytes: int = LAYER) -> list[bool]:
        """Whether each of so many layers was whole, to the byte, when it ran."""
        exchange, buffers = self.ring(slots, piece_bytes)
        free = [self.accelerator.record()] * slots
        ahead, right = [], []
        for index in range(count + slots - 1):
            if index < count:
                ahead.append(exchange.stream(index % slots, layer(index), pinned=True, after=free[index % slots]))
            if (run := index - slots + 1) >= 0:
                self.accelerator.wait(ahead[run])
                right.append(torch.equal(buffers[run % slots], layer(run)))
                self.accelerator.clock.advance(compute)
                free[run % slots] = self.accelerator.record()
        exchange.close()
        for buffer in buffers:
            self.link.free(buffer)
        return right


def crew(ranks: int, delays: Sequence[Callable[[], None] | None] = (None,) * 8) -> list[Rank]:
    board = Board.make(ranks)
    return [Rank(number, circle, board, delays[number]) for number, circle in enumerate(circles(ranks))]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("piece_bytes", [LAYER, 30_000])
def test_every_layer_is_whole_when_it_runs_and_memory_is_as_before(ranks: int, piece_bytes: int) -> None:
    members = crew(ranks)
    found = together(ranks, lambda rank: members[rank].stream(12, 1e-4, piece_bytes=piece_bytes))
    assert found == [[True] * 12] * ranks
    assert all(member.accelerator.counters().allocated == 0 for member in members)


def test_streaming_over_both_links_takes_the_seconds_of_a_share() -> None:
    """Steady state without compute: the link is never idle, and each layer takes it for half its bytes."""
    members = crew(2)
    together(2, lambda rank: members[rank].stream(20, 0.0, slots=3))
    share_seconds = LAYER / 2 / CARD.pinned_rate
    swap_seconds = LAYER / 2 / RATE
    for member in members:
        assert member.accelerator.clock.compute == pytest.approx(20 * share_seconds + swap_seconds, rel=1e-6)


def test_pieces_shorten_what_the_swap_takes_after_the_fetch() -> None:
    def seconds(piece_bytes: int) -> float:
        members = crew(2)
        together(2, lambda rank: members[rank].stream(20, LAYER / 2 / CARD.pinned_rate, piece_bytes=piece_bytes))
        return members[0].accelerator.clock.compute

    whole, pieces = seconds(LAYER), seconds(20_000)
    share_seconds = LAYER / 2 / CARD.pinned_rate
    least = 21 * share_seconds  # the first fetch, then compute that every other fetch hides behind
    assert whole > least + 10 * LAYER / 2 / RATE
    assert pieces - least < 0.3 * (whole - least)


def test_the_slowest_rank_sets_the_pace_of_all_and_no_byte_is_wrong() -> None:
    gate = torch.Generator().manual_seed(1)

    def slow() -> None:
        layer(int(torch.randint(50, (1,), generator=gate)), 2_000_000)

    members = crew(2, [None, slow])
    assert together(2, lambda rank: members[rank].stream(15, 0.0, piece_bytes=50_000)) == [[True] * 15] * 2


def test_rings_that_follow_one_another_on_a_link_do_not_take_each_others_turns_for_their_own() -> None:
    members = crew(3)

    def run(rank: int) -> list[bool]:
        return [all(members[rank].stream(5, 0.0, piece_bytes=40_000)) for _ in range(4)]

    assert together(3, run) == [[True] * 4] * 3


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_sharded_layer_is_put_together_without_the_host(ranks: int) -> None:
    members = crew(ranks)

    def run(rank: int) -> list[bool]:
        member = members[rank]
        exchange, slots = member.ring(2)
        own = share(LAYER, ranks, rank)
        shards = [member.link.allocate(own.nbytes) for _ in range(3)]
        for number, shard in enumerate(shards):
            shard.copy_(layer(number)[own.part])
        regions = member.link.introduce("shards", shards)
        right = []
        for index in range(6):
            everybodys = [one[index % 3] if one else member.link.region(shards[index % 3]) for one in regions]
            member.accelerator.wait(exchange.assemble(index % 2, LAYER, everybodys, after=None))
            right.append(torch.equal(slots[index % 2], layer(index % 3)))
        member.link.part("shards", regions)
        exchange.close()
        return right

    assert together(ranks, run) == [[True] * 6] * ranks
    expected = 6 * LAYER / RATE
    assert members[0].accelerator.clock.compute == pytest.approx(expected, rel=1e-3)


def test_a_streamed_layer_is_not_overwritten_while_a_peer_still_takes_it() -> None:
    """Rank 0 goes on to put a sharded layer into the slot that rank 1 pulls from, late."""
    members = crew(2)

    def run(rank: int) -> bool:
        member = members[rank]
        exchange, slots = member.ring(1)
        own = share(LAYER, 2, rank)
        shard = member.link.allocate(own.nbytes)
        shard.copy_(layer(5)[own.part])
        regions = member.link.introduce("shards", [shard])
        streamed = exchange.stream(0, layer(1), pinned=True, after=None)
        member.accelerator.wait(streamed)
        right = torch.equal(slots[0], layer(1))
        everybodys = [one[0] if one else member.link.region(shard) for one in regions]
        member.accelerator.wait(exchange.assemble(0, LAYER, everybodys, after=None))
        right = right and torch.equal(slots[0], layer(5))
        member.link.part("shards", regions)
        exchange.close()
        return right

    assert together(2, run) == [True, True]


def test_a_rank_that_does_not_queue_its_turn_is_named() -> None:
    members = crew(2)
    for member in members:
        member.link._patience = 0.05

    def run(rank: int) -> None:
        exchange, _ = members[rank].ring(1)
        if rank == 0:
            exchange.stream(0, layer(0), pinned=True, after=None)

    found = together(2, run)
    assert isinstance(found[0], RankLost)
    assert str(found[0]) == "rank 0 waited 0.05 s for rank 1 to queue turn 1"


def test_ranks_with_other_slots_do_not_start() -> None:
    members = crew(2)
    found = together(2, lambda rank: members[rank].ring(1 + rank))
    assert [str(error) for error in found] == [
        "ring: rank 1 brought 2 buffers and rank 0 1",
        "ring: rank 0 brought 1 buffers and rank 1 2",
    ]
    assert all(isinstance(error, RanksError) for error in found)


def test_shared_buffers_count_against_the_card_and_are_spoiled_when_given_back() -> None:
    (member, _) = crew(2)
    with pytest.raises(torch.OutOfMemoryError):
        member.link.allocate(CARD.capacity_bytes + 1)
    buffer = member.link.allocate(1000)
    assert member.accelerator.counters().weights == 1000
    buffer.fill_(1)
    member.link.free(buffer)
    assert member.accelerator.counters().weights == 0
    assert buffer.tolist() == [POISON] * 1000


def test_a_layer_that_one_rank_alone_calls_for_comes_over_its_own_link_and_is_no_turn() -> None:
    members = crew(2)

    def run(rank: int) -> list[bool]:
        member = members[rank]
        exchange, slots = member.ring(1)
        right = []
        for number in range(4):
            member.accelerator.wait(exchange.stream(0, layer(number), pinned=True, after=None))
            right.append(torch.equal(slots[0], layer(number)))
            if rank == number % 2:
                copy = partial(member.copy_alone, layer(9))
                member.accelerator.wait(exchange.alone(0, copy, after=None))
                right.append(torch.equal(slots[0], layer(9)))
        exchange.close()
        return right

    assert together(2, run) == [[True] * 6] * 2


def test_the_rate_of_the_peer_link_is_measured_and_memory_given_back() -> None:
    circle = circles(2)
    board = Board.make(2)
    members = [Rank(number, circle[number], board) for number in range(2)]

    def run(rank: int) -> float:
        member = members[rank]
        return measure_peer_rate(member.accelerator, member.link, circle[rank], budget_bytes=1 << 20)

    assert together(2, run) == [pytest.approx(RATE, rel=1e-6)] * 2
    assert all(member.accelerator.counters().weights == 0 for member in members)


def test_more_buffers_than_a_meeting_has_room_for_are_introduced_in_several() -> None:
    members = crew(2)

    def run(rank: int) -> list[int]:
        member = members[rank]
        buffers = [member.link.allocate(100 + number) for number in range(450)]
        regions = member.link.introduce("shards", buffers)
        member.link.part("shards", regions)
        return [region.nbytes for region in regions[1 - rank]]

    assert together(2, run) == [[100 + number for number in range(450)]] * 2
