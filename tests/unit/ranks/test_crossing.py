"""Units of the weights engine in a ring that two ranks have: from one copy, from shards, and over one's own link."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from circle_of_threads import circles, together

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.peers import Crossing, Shards
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.store import NodeStore
from stowplan_agent.ranks.store.contents import digest
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.layout import Place, blocks
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.filling import fill_all
from stowplan_agent.weights.unit import Unit

LAYERS = 6
SLOTS = 2


class Rank:
    """Layers as real units: the first two shared, the next two in shards, the last two this rank's own."""

    def __init__(self, circle: Any, board: Board) -> None:
        self.circle = circle
        self.accelerator, self.ledger = EmulatedAccelerator(EmulatedCard(capacity_bytes=32 << 20)), Ledger()
        self.link = EmulatedPeerLink(self.accelerator, circle, board)
        self.store = NodeStore(circle, self.accelerator, self.ledger)
        generator = torch.Generator().manual_seed(5)
        self.weights = [torch.randn(100, 60, generator=generator) for _ in range(LAYERS)]
        self.units = [self._unit(weight) for weight in self.weights]

    def _unit(self, weight: torch.Tensor) -> Unit:
        module = torch.nn.Linear(60, 100, bias=False)
        module.weight.data = weight.clone()
        return Unit("denoiser", blocks([Place(module, "weight", module.weight, False)]), self.accelerator, self.ledger)

    def load(self) -> Shards:
        sources = [unit.source for unit in self.units]
        shared = self.store.take(
            "denoiser", [sources[at].nbytes for at in (0, 1)], [digest(sources[at]) for at in (0, 1)]
        )
        self.store.fill([(sources[at], shared[at]) for at in (0, 1)])
        self.store.settle(shared)
        own = take_arena("denoiser", [sources[at].nbytes for at in (4, 5)], self.accelerator, self.ledger)
        fill_all([(sources[at], own[at - 4].tensor) for at in (4, 5)])
        for at, buffer in zip((0, 1, 4, 5), [*shared, *own], strict=True):
            buffer.set_pinned(at != 5)
            self.units[at].keep(buffer)
        shards = Shards("denoiser", self.accelerator, self.link, self.circle, self.ledger)
        shards.take({self.units[at]: sources[at] for at in (2, 3)})
        return shards

    def run(self, passes: int) -> list[bool]:
        shards = self.load()
        crossing = Crossing(
            self.accelerator,
            self.link,
            self.circle,
            shards=shards,
            piece_bytes=5000,
        )
        slots = crossing.open("denoiser", [self.units[0].nbytes] * SLOTS)
        free, here, right = [self.accelerator.record()] * SLOTS, [], []
        for index in range(passes * LAYERS + SLOTS - 1):
            if index < passes * LAYERS:
                here.append(crossing.bring(index % SLOTS, self.units[index % LAYERS], free[index % SLOTS]))
            if (at := index - SLOTS + 1) >= 0:
                self.accelerator.wait(here[at])
                (view,) = self.units[at % LAYERS].views(slots[at % SLOTS])
                right.append(torch.equal(view, self.weights[at % LAYERS]))
                free[at % SLOTS] = self.accelerator.record()
        crossing.close()
        crossing.close()
        shards.give_back([self.units[at] for at in (2, 3)])
        return right


@pytest.mark.parametrize("ranks", [2, 3])
def test_layers_are_whole_from_wherever_they_come(ranks: int) -> None:
    board = Board.make(ranks)
    members = [Rank(circle, board) for circle in circles(ranks)]
    assert together(ranks, lambda rank: members[rank].run(3)) == [[True] * 3 * LAYERS] * ranks
    assert [member.accelerator.counters().weights for member in members] == [0] * ranks
