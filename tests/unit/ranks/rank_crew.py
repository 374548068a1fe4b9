"""Ranks as threads, each with an engine over the same stack: in step, and every driver call can fail on one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

    def __init__(
        self, ranks: int = 2, seed: ComponentPlacement | None = None, stacks: list[Stack] | None = None
    ) -> None:
        self.ranks = ranks
        board, seats = Board.make(ranks), circles(ranks, patience=20.0)
        self.stacks = stacks or [Stack() for _ in range(ranks)]
        self.expected = Stack()(X).detach()
        self.cards = [Card(EmulatedCard(capacity_bytes=64 << 20, outside_bytes=0)) for _ in range(ranks)]
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
