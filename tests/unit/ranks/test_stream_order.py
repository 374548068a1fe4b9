"""The streams of all ranks, under many interleavings: no layer is ever wrong when it is computed with, none waits."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from random_streams import Mark, RandomCard, run_all

from stowplan_agent.accelerators import Event
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.peers import Exchange
from stowplan_agent.ranks.peers.streams import StreamPeerLink
from stowplan_agent.ranks.shares import share

LAYER = 256 * 12
COUNT = 9


def layer(number: int) -> torch.Tensor:
    return (torch.arange(LAYER) * 7 + 31 * number).to(torch.uint8)


Way = str
"""How a layer comes into its slot: ``stream``, ``shards``, or ``alone`` (of one rank, which no peer knows of)."""


def queue_passes(
    ranks: int,
    slots: int,
    piece_bytes: int,
    ways: Sequence[Sequence[Way]],
    link: type[StreamPeerLink] = StreamPeerLink,
) -> tuple[list[RandomCard], list[int]]:
    """Everything that all hosts queue; and the layers that were wrong when they ran, once it is run.

    ``ways``: for each layer what is queued into its slot, one after another; only the last is computed with.
    """
    board, cards, wrong = Board.make(ranks), [], []
    for rank in range(ranks):
        cards.append(RandomCard(rank, board, cards, link))
        cards[-1].slots = [cards[-1].link.allocate(LAYER) for _ in range(slots)]
    for rank, card in enumerate(cards):
        exchange = Exchange("ring", card.slots, card, card.link, piece_bytes=piece_bytes)  # type: ignore[arg-type]
        free, here = [Mark(passed=True)] * slots, []
        for index in range(len(ways) + slots - 1):
            if index < len(ways):
                for number, way in enumerate(ways[index]):
                    last = number == len(ways[index]) - 1
                    content = index if last else 100 + number
                    ends = _queue(exchange, card, rank, ranks, index % slots, content, way, free[index % slots])
                here.append(ends)
            if (at := index - slots + 1) >= 0:
                card.compute.wait(here[at])
                slot = card.slots[at % slots]
                for _ in range(2):
                    card.compute.do(lambda slot=slot, at=at: None if torch.equal(slot, layer(at)) else wrong.append(at))
                free[at % slots] = card.compute.record()
    return cards, wrong


def _queue(
    exchange: Exchange, card: RandomCard, rank: int, ranks: int, slot: int, content: int, way: Way, after: Event
) -> Event:
    bytes_of = layer(content)
    if way == "stream":
        return exchange.stream(slot, bytes_of, pinned=True, after=after)
    if way == "alone":
        return exchange.alone(
            slot, lambda buffer, free: card.copy(buffer, bytes_of, pinned=True, after=free), after=after
        )
    regions = [card.link.region(bytes_of[share(LAYER, ranks, peer).part]) for peer in range(ranks)]
    return exchange.assemble(slot, LAYER, regions, after=after)


def straight(sharded: frozenset[int] = frozenset()) -> list[list[Way]]:
    return [["shards" if index in sharded else "stream"] for index in range(COUNT)]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("sharded", [frozenset(), frozenset({1, 4, 5}), frozenset(range(COUNT))])
def test_layers_are_right_in_every_order_of_streams(ranks: int, slots: int, sharded: frozenset[int]) -> None:
    for seed in range(12):
        cards, wrong = queue_passes(ranks, slots, (LAYER, 600)[seed % 2], straight(sharded))
        run_all(cards, seed)
        assert wrong == []


def dropped(seed: int) -> list[list[Way]]:
    """Layers of which some are let go, on their way, for another one into the same slot."""
    chance = random.Random(seed)
    return [
        [chance.choice(("stream", "shards", "alone")) for _ in range(chance.choice((1, 1, 2, 3)))] for _ in range(COUNT)
    ]


@pytest.mark.parametrize("slots", [1, 2])
def test_layers_that_are_let_go_on_their_way_spoil_none_that_come_after_them(slots: int) -> None:
    for seed in range(40):
        cards, wrong = queue_passes(2, slots, (LAYER, 600)[seed % 2], dropped(seed))
        run_all(cards, seed)
        assert wrong == []


class DeafToSwaps(StreamPeerLink):
    """Writes into a slot as soon as this rank has done with it."""

    def free_of(self, turn: int, after: Sequence[Event]) -> Event:
        return super().free_of(0, after)


class ForgetsWhatIsOnItsWay(StreamPeerLink):
    """Takes a slot for free once compute is through with it, whatever is still being copied into it."""

    def free_of(self, turn: int, after: Sequence[Event]) -> Event:
        return super().free_of(turn, after[:1])


class DeafToFetches(StreamPeerLink):
    """Pulls what may not be there yet."""

    def pull(self, destination, source, start, *, turn, after):  # type: ignore[no-untyped-def]
        super().pull(destination, source, start, turn=0, after=after)


class ForgetsItsOwn(StreamPeerLink):
    """Says that a layer is whole when the others' shares are here."""

    def swapped(self, turn: int, own: Event) -> Event:
        return super().swapped(turn, Mark(passed=True))


class HoldsItsTongue(StreamPeerLink):
    """Tells the peers of its share after it has pulled theirs."""

    def fetched(self, turn: int, end: Event) -> None:
        self._peer.wait(end)
        self._late = turn

    def swapped(self, turn: int, own: Event) -> Event:
        end = super().swapped(turn, own)
        self._voice.wait(end)
        self._voice.write_word(self.rank, 0, turn)  # type: ignore[arg-type]
        return end


@pytest.mark.parametrize("broken", [DeafToSwaps, DeafToFetches, ForgetsItsOwn, HoldsItsTongue, ForgetsWhatIsOnItsWay])
def test_a_link_that_leaves_out_one_wait_or_word_is_found_out(broken: type[StreamPeerLink]) -> None:
    found = 0
    for seed in range(40):
        cards, wrong = queue_passes(2, 2, LAYER, dropped(seed) if seed % 2 else straight(), broken)
        try:
            run_all(cards, seed)
        except AssertionError:
            found += 1
        found += bool(wrong)
    assert found > 0
