"""The streams of all ranks, under many interleavings: no layer is ever wrong when it is computed with, none waits."""

from __future__ import annotations

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


def queue_passes(
    ranks: int, slots: int, piece_bytes: int, sharded: frozenset[int], link: type[StreamPeerLink] = StreamPeerLink
) -> tuple[list[RandomCard], list[int]]:
    """Everything that all hosts queue; and the layers that were wrong when they ran, once it is run."""
    board, cards, wrong = Board.make(ranks), [], []
    for rank in range(ranks):
        cards.append(RandomCard(rank, board, cards, link))
        cards[-1].slots = [cards[-1].link.allocate(LAYER) for _ in range(slots)]
    for rank, card in enumerate(cards):
        exchange = Exchange("ring", card.slots, card, card.link, piece_bytes=piece_bytes)  # type: ignore[arg-type]
        free, here = [Mark(passed=True)] * slots, []
        for index in range(COUNT + slots - 1):
            if index < COUNT:
                here.append(_queue(exchange, card, rank, ranks, index, slots, sharded, free[index % slots]))
            if (at := index - slots + 1) >= 0:
                card.compute.wait(here[at])
                slot = card.slots[at % slots]
                card.compute.do(lambda slot=slot, at=at: None if torch.equal(slot, layer(at)) else wrong.append(at))
                card.compute.do(lambda slot=slot, at=at: None if torch.equal(slot, layer(at)) else wrong.append(at))
                free[at % slots] = card.compute.record()
    return cards, wrong


def _queue(
    exchange: Exchange,
    card: RandomCard,
    rank: int,
    ranks: int,
    index: int,
    slots: int,
    sharded: frozenset[int],
    after: Event,
) -> Event:
    if index not in sharded:
        return exchange.stream(index % slots, layer(index), pinned=True, after=after)
    regions = []
    for peer in range(ranks):
        own = share(LAYER, ranks, peer)
        regions.append(card.link.region(layer(index)[own.part]))
    others = [None if peer == rank else region for peer, region in enumerate(regions)]
    return exchange.assemble(index % slots, LAYER, regions[rank], others, after=after)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("sharded", [frozenset(), frozenset({1, 4, 5}), frozenset(range(COUNT))])
def test_layers_are_right_in_every_order_of_streams(ranks: int, slots: int, sharded: frozenset[int]) -> None:
    for seed in range(12):
        cards, wrong = queue_passes(ranks, slots, (LAYER, 600)[seed % 2], sharded)
        run_all(cards, seed)
        assert wrong == []


class DeafToSwaps(StreamPeerLink):
    """Writes into a slot as soon as this rank has done with it."""

    def free_of(self, turn: int, after: Event | None) -> Event:
        return super().free_of(0, after)


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


@pytest.mark.parametrize("broken", [DeafToSwaps, DeafToFetches, ForgetsItsOwn, HoldsItsTongue])
def test_a_link_that_leaves_out_one_wait_or_word_is_found_out(broken: type[StreamPeerLink]) -> None:
    found = 0
    for seed in range(40):
        cards, wrong = queue_passes(2, 2, LAYER, frozenset(), broken)
        try:
            run_all(cards, seed)
        except AssertionError:
            found += 1
        found += bool(wrong)
    assert found > 0
