"""The parts of `ranks.py`: each measures one thing on every rank at once, and returns this rank's figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch

from rank_cards import Cards, Pattern, timed
from stowplan_agent.accelerators import Event
from stowplan_agent.ranks.shares import largest_share, share, shares
from stowplan_agent.ranks.store import NodeStore
from stowplan_agent.ranks.store.node_store import Buffer
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.loading.filling import fill_all

SLOTS: Final = 2
Figures = dict[str, Any]


@contextmanager
def node_store(cards: Cards, figures: Figures) -> Any:
    """All layers in one copy for all ranks, locked by shares."""
    store = NodeStore(cards.seat.circle, cards.accelerator, cards.ledger)
    sizes = [cards.nbytes] * cards.layers
    buffers = store.take("store", sizes, [f"layer {number}" for number in range(cards.layers)])
    jobs = [(Pattern(number, cards.nbytes), buffer) for number, buffer in enumerate(buffers)]
    figures["fillSeconds"] = timed(lambda: store.fill(jobs))
    figures["lockSeconds"] = timed(lambda: [buffer.set_pinned(True) for buffer in buffers])
    figures["locked"] = all(buffer.pinned for buffer in buffers)
    store.settle(buffers)
    try:
        yield buffers
    finally:
        cards.accelerator.synchronize()
        for buffer in buffers:
            buffer.drop()


@contextmanager
def own_store(cards: Cards, figures: Figures) -> Any:
    """All layers in this rank's own memory, locked."""
    buffers = take_arena("own", [cards.nbytes] * cards.layers, cards.accelerator, cards.ledger)
    jobs = [(Pattern(number, cards.nbytes), buffer.tensor) for number, buffer in enumerate(buffers)]
    figures["fillSeconds"] = timed(lambda: fill_all(jobs))
    figures["lockSeconds"] = timed(lambda: [buffer.set_pinned(True) for buffer in buffers])
    try:
        yield buffers
    finally:
        cards.accelerator.synchronize()
        for buffer in buffers:
            buffer.drop()


def fetch_all(cards: Cards, buffers: Sequence[Buffer], slots: Sequence[torch.Tensor]) -> Event:
    """Every layer over this rank's own link, pass after pass."""
    end: Event = None
    for index in range(cards.count):
        host = buffers[index % cards.layers]
        end = cards.accelerator.copy(slots[index % len(slots)], host.tensor, pinned=host.pinned, after=None)
    return end


def link(cards: Cards, _: Figures) -> Figures:
    figures: Figures = {}
    moved = cards.count * cards.nbytes
    slots = [cards.accelerator.allocate(cards.nbytes) for _ in range(SLOTS)]
    with own_store(cards, figures) as buffers:
        for rank in range(cards.seat.ranks):
            cards.meet(f"link {rank}")
            if rank == cards.seat.rank:
                figures["alone"] = moved / cards.seconds(lambda: fetch_all(cards, buffers, slots))
        cards.meet("links")
        figures["together"] = moved / cards.seconds(lambda: fetch_all(cards, buffers, slots))
        cards.meet("links measured")
    for slot in slots:
        cards.accelerator.free(slot)
    return figures


def store(cards: Cards, _: Figures) -> Figures:
    figures: Figures = {}
    with node_store(cards, figures) as buffers:
        figures["lockedBytes"] = sum(buffer.locks.nbytes for buffer in buffers)
        own = buffers[0].own.part
        slot = cards.accelerator.allocate(buffers[0].own.nbytes)

        def fetch_shares() -> Event:
            end: Event = None
            for index in range(cards.count):
                host = buffers[index % cards.layers]
                end = cards.accelerator.copy(slot, host.tensor[own], pinned=host.pinned, after=None)
            return end

        cards.meet("shares")
        figures["sharesBytesPerSecond"] = cards.count * slot.nbytes / cards.seconds(fetch_shares)
        cards.meet("shares fetched")
        cards.accelerator.free(slot)
        expected = torch.empty(cards.nbytes, dtype=torch.uint8)
        Pattern(cards.layers - 1, cards.nbytes).read(0, expected)
        figures["same"] = torch.equal(buffers[-1].tensor, expected)
    return figures


def peer(cards: Cards, _: Figures) -> Figures:
    figures: Figures = {}
    rank, ranks = cards.seat.rank, cards.seat.ranks
    give, take = cards.link.allocate(cards.nbytes), cards.link.allocate(cards.nbytes)
    regions = cards.link.introduce("peer", [give])
    source = regions[(rank + 1) % ranks][0]
    count = 4 * cards.passes

    def pulls() -> Event:
        start = cards.accelerator.record()
        for _ in range(count):
            cards.link.pull(take, source, 0, turn=0, after=start)
        return cards.link.swapped(0, start)

    for one in range(ranks):
        cards.meet(f"peer {one}")
        if one == rank:
            cards.seconds(pulls)  # the first pull of a pair of cards opens the way
            figures["oneWay"] = count * cards.nbytes / cards.seconds(pulls)
    cards.meet("peers")
    figures["allAtOnce"] = count * cards.nbytes / cards.seconds(pulls)
    cards.meet("peers measured")
    cards.link.part("peer", regions)
    for buffer in (give, take):
        cards.link.free(buffer)
    return figures


def lockstep(cards: Cards, _: Figures) -> Figures:
    figures: Figures = {}
    rank, count = cards.seat.rank, cards.count
    parts = shares(cards.nbytes, cards.seat.ranks)
    slots = [cards.link.allocate(cards.nbytes) for _ in range(SLOTS)]
    regions = cards.link.introduce("lockstep", slots)
    with node_store(cards, {}) as buffers:

        def fetch(index: int) -> Event:
            host, own = buffers[index % cards.layers], parts[rank].part
            return cards.accelerator.copy(slots[index % SLOTS][own], host.tensor[own], pinned=host.pinned, after=None)

        def swap(index: int) -> None:
            start = cards.accelerator.record()
            for peer_rank, part in enumerate(parts):
                if peer_rank != rank:
                    source = regions[peer_rank][index % SLOTS]
                    cards.link.pull(slots[index % SLOTS][part.part], source, part.start, turn=0, after=start)
            cards.accelerator.wait(cards.link.swapped(0, start))

        def all_layers() -> None:
            for index in range(count + 1):  # layer by layer: fetch one share while the shares before it are swapped
                if index < count:
                    cards.accelerator.wait(fetch(index))
                if index:
                    swap(index - 1)
                cards.meet("layer")

        cards.meet("lockstep")
        figures["bytesPerSecond"] = count * cards.nbytes / timed(all_layers)
        figures["same"] = cards.is_layer(slots[(count - 1) % SLOTS], (count - 1) % cards.layers)
    cards.link.part("lockstep", regions)
    for slot in slots:
        cards.link.free(slot)
    return figures


def stream(cards: Cards, document: Figures) -> Figures:
    """The steady rate with 2 and 3 slots and shares passed on whole or in pieces, then compute beside it."""
    figures: Figures = {}
    with node_store(cards, figures) as buffers:
        for slots in (2, 3):
            for pieces in (1, 4, 10, 20):
                name = f"{slots} slots, {pieces} pieces"
                figures[name] = streamed(
                    cards, buffers, slots, -(-largest_share(cards.nbytes, cards.seat.ranks) // pieces)
                )
    figures["bytesPerSecond"] = max(one["bytesPerSecond"] for one in figures.values() if isinstance(one, dict))
    if "link" in document:
        figures["ratio"] = figures["bytesPerSecond"] / document["link"][cards.seat.rank]["together"]
    return figures


def streamed(cards: Cards, buffers: Sequence[Buffer], slot_count: int, piece_bytes: int) -> Figures:
    figures: Figures = {}
    began = time.monotonic()
    exchange, slots = cards.exchange("stream", slot_count, piece_bytes)
    figures["openSeconds"] = time.monotonic() - began

    def ahead(index: int, after: Event) -> Event:
        host = buffers[index % cards.layers]
        return exchange.stream(index % slot_count, host.tensor, pinned=host.pinned, after=after)

    layers = partial(cards.passes_over, ahead, slot_count)
    layers(1)
    cards.meet("stream")
    seconds = cards.seconds(lambda: layers(0))
    figures["bytesPerSecond"] = cards.count * cards.nbytes / seconds
    figures["same"] = cards.are_layers(slots)
    unit = cards.unit_seconds()
    for share_of in (0.5, 1.0, 2.0):
        times = cards.everybodys(max(1, round(share_of * seconds / cards.count / unit)))
        alone = cards.seconds(lambda times=times: cards.passes_over(None, slot_count, times))
        cards.meet(f"beside {share_of}")
        beside = cards.seconds(lambda times=times: layers(times))
        figures[f"overCompute {share_of}"] = beside / max(alone, seconds)
        cards.meet(f"beside {share_of} measured")
    cards.meet("stream measured")
    began = time.monotonic()
    exchange.close()
    for slot in slots:
        cards.link.free(slot)
    figures["closeSeconds"] = time.monotonic() - began
    return figures


def assemble(cards: Cards, _: Figures) -> Figures:
    figures: Figures = {}
    rank, ranks = cards.seat.rank, cards.seat.ranks
    exchange, slots = cards.exchange("assemble", SLOTS, cards.nbytes)
    own = share(cards.nbytes, ranks, rank)
    shards = [cards.link.allocate(own.nbytes) for _ in range(cards.layers)]
    for number, shard in enumerate(shards):
        host = torch.empty(own.nbytes, dtype=torch.uint8)
        Pattern(number, cards.nbytes).read(own.start, host)
        cards.accelerator.wait(cards.accelerator.copy(shard, host, pinned=False, after=None))
    regions = cards.link.introduce("shards", shards)

    def ahead(index: int, after: Event) -> Event:
        number = index % cards.layers
        everybodys = [one[number] if one else cards.link.region(shards[number]) for one in regions]
        return exchange.assemble(index % SLOTS, cards.nbytes, everybodys, after=after)

    layers = partial(cards.passes_over, ahead, SLOTS)
    layers(1)
    cards.meet("assemble")
    figures["bytesPerSecond"] = cards.count * cards.nbytes / cards.seconds(lambda: layers(0))
    figures["same"] = cards.are_layers(slots)
    unit = cards.unit_seconds()
    for milliseconds in (2, 6, 20):
        times = cards.everybodys(max(1, round(milliseconds / 1000 / unit)))
        alone = cards.seconds(lambda times=times: cards.passes_over(None, SLOTS, times))
        cards.meet(f"beside {milliseconds}")
        beside = cards.seconds(lambda times=times: layers(times))
        figures[f"overCompute, {milliseconds} ms a layer"] = beside / alone
        cards.meet(f"beside {milliseconds} measured")
    cards.link.part("shards", regions)
    exchange.close()
    for buffer in (*shards, *slots):
        cards.link.free(buffer)
    return figures


MEASURES: Final[dict[str, Callable[[Cards, Figures], Figures]]] = {
    part.__name__: part for part in (link, store, peer, lockstep, stream, assemble)
}
