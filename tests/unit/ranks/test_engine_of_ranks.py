"""The weights engine on several ranks, in threads: every placement and every move, bit-equal, from one host copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from circle_of_threads import circles, together
from safetensors.torch import load_file, save_file
from torch import nn

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks import neighbourhood
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.neighbourhood import Neighbourhood
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.store import SharedBuffer
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import Placement
from unit.weights.stacks import layerwise, offload, resident

WIDTH = 64


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class Stack(nn.Module):
    """Two groups of layers without buffers, and loose weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.ModuleList(Layer() for _ in range(7))
        self.second = nn.ModuleList(Layer() for _ in range(4))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.first, *self.second):
            x = layer(x)
        return self.out(x)


def engine_of(seat: Circle, accelerator: EmulatedAccelerator, board: Board, *, swaps: bool = True) -> WeightsEngine:
    link = EmulatedPeerLink(accelerator, seat, board, patience=20.0) if swaps else None
    return WeightsEngine(
        accelerator,
        neighbours=partial(Neighbourhood, circle=seat, accelerator=accelerator, link=link, piece_bytes=3000),
    )


ENTRIES: dict[str, Callable[[], Any]] = {
    "resident": resident,
    "offload": lambda: offload(pinned=9000),
    "streamed": lambda: layerwise({"first": 0, "second": 0}, loose="Forward", pinned=4),
    "half": lambda: layerwise({"first": 3, "second": 2}, slots=3, pinned=2),
    "unpinned": lambda: layerwise({"first": 1, "second": 0}),
}
MOVES = ["streamed", "half", "resident", "unpinned", "offload", "streamed", "resident", "half"]


@pytest.mark.parametrize(("ranks", "swaps"), [(2, True), (3, True), (2, False)])
def test_every_placement_and_move_is_bit_equal_and_of_one_host_copy(ranks: int, swaps: bool) -> None:
    board, seats = Board.make(ranks), circles(ranks)
    modules, x = [Stack() for _ in range(ranks)], torch.ones(2, WIDTH)

    @torch.no_grad()
    def run(rank: int) -> list[tuple[bool, int]]:
        accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=64 << 20, outside_bytes=0))
        engine = engine_of(seats[rank], accelerator, board, swaps=swaps)
        module = modules[rank]
        expected = module(x)
        engine.adopt({"part": module})
        found = []
        for name in MOVES:
            engine.place(ENTRIES[name]())
            for _ in range(2):
                with engine.request():
                    outputs = [module(x) for _ in range(3)]
            engine.check()
            engine.commit()
            engine.check()
            held = engine.ledger.total(Tier.PINNED) + engine.ledger.total(Tier.PAGEABLE)
            found.append((all(torch.equal(output, expected) for output in outputs), held))
        return found

    found = together(ranks, run)
    assert not [one for one in found if isinstance(one, Exception)]
    layer, loose = WIDTH * WIDTH * 4 + 256, WIDTH * WIDTH * 4 + 256
    one_copy = {"streamed": 11 * layer + loose, "half": 6 * layer, "resident": 0, "offload": 11 * layer + loose}
    one_copy["unpinned"] = 10 * layer
    for at, name in enumerate(MOVES):
        assert [one[at][0] for one in found] == [True] * ranks
        assert sum(one[at][1] for one in found) == one_copy[name]


class Counting(nn.Module):
    """A layer whose buffer every pass changes, as a batch norm's in training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.add_(1)
        return self.linear(x) * self.passes


def test_what_a_pass_may_change_is_each_ranks_own() -> None:
    """Rank 1 runs more passes than rank 0, and no rank writes to a copy that the other reads."""
    board, seats = Board.make(2), circles(2)
    torch.manual_seed(1)
    modules: list[nn.Module] = [Counting(), Counting()]
    modules[1].load_state_dict(modules[0].state_dict())

    @torch.no_grad()
    def run(rank: int) -> float:
        accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=64 << 20, outside_bytes=0))
        engine = engine_of(seats[rank], accelerator, board)
        engine.adopt({"part": modules[rank]})
        for _ in range(1 + rank):
            with engine.request():
                modules[rank](torch.ones(1, WIDTH))
        engine.check()
        return float(modules[rank].get_buffer("passes"))

    assert together(2, run) == [1.0, 2.0]


def test_a_rank_without_room_goes_back_alone_and_the_others_follow() -> None:
    """The card of rank 0 is full: its move fails after the ranks have met, and its way back meets nobody."""
    board, seats, x = Board.make(2), circles(2), torch.ones(2, WIDTH)
    modules = [Stack() for _ in range(2)]

    @torch.no_grad()
    def run(rank: int) -> tuple[bool, bool]:
        capacity = (128 << 10) if rank == 0 else (64 << 20)
        accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=capacity, outside_bytes=0))
        engine = engine_of(seats[rank], accelerator, board)
        expected, failed = modules[rank](x), False
        engine.adopt({"part": modules[rank]})
        streamed = layerwise({"first": 0, "second": 0}, pinned=2)
        engine.place(streamed)
        before = engine.snapshot()
        try:
            engine.place(resident())
        except torch.OutOfMemoryError:
            failed = True
        engine.place(streamed)
        engine.drop_new_copies(before)
        assert engine.snapshot() == before
        engine.check()
        with engine.request():
            return torch.equal(modules[rank](x), expected), failed

    assert together(2, run) == [(True, True), (True, False)]


def test_ranks_that_mapped_the_same_file_share_its_copy_without_reading_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_digest(_: object) -> str:
        raise AssertionError("a file says which bytes these are")

    monkeypatch.setattr(neighbourhood, "digest", no_digest)
    save_file(Stack().state_dict(), tmp_path / "stack.safetensors")
    board, seats = Board.make(2), circles(2)
    modules = [Stack() for _ in range(2)]
    for module in modules:
        module.load_state_dict(load_file(tmp_path / "stack.safetensors"), assign=True)

    def run(rank: int) -> tuple[list[bool], int]:
        accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=64 << 20, outside_bytes=0))
        engine = engine_of(seats[rank], accelerator, board)
        engine.adopt({"part": modules[rank]}, lambda _: Placement(components=(resident(),)))
        engine.commit()
        engine.place(offload())
        engine.check()
        return [isinstance(buffer, SharedBuffer) for buffer in engine._host_buffers()], engine.ledger.total(
            Tier.PAGEABLE
        )

    found = together(2, run)
    assert not [one for one in found if isinstance(one, Exception)]
    assert [all(one[0]) for one in found] == [True, True]
    assert sum(one[1] for one in found) == 12 * (WIDTH * WIDTH * 4 + 256)
