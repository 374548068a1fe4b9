"""Streams of several devices, run in whatever order chance comes to: each does what was queued on it, one after
another.

All hosts have queued everything before any stream begins, which is as far ahead as a host can be. A copy takes two
steps, so that what is overwritten meanwhile shows: bytes are read in one and written in the other.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from stowplan_agent.ranks.board import Board, Turn, reached
from stowplan_agent.ranks.peers.interface import PeerRegion
from stowplan_agent.ranks.peers.streams import StreamPeerLink


@dataclass
class Mark:
    """An event: whether its stream has come to it."""

    passed: bool = False


@dataclass(eq=False)
class RandomStream:
    """Pairs: whether it can be done now, and what is done."""

    board: Board
    queue: deque[tuple[Callable[[], bool], Callable[[], object]]] = field(default_factory=deque)

    def do(self, work: Callable[[], object], when: Callable[[], bool] = lambda: True) -> None:
        self.queue.append((when, work))

    def wait(self, event: Mark) -> None:
        self.do(lambda: None, lambda: event.passed)

    def wait_word(self, rank: int, word: Turn, turn: int) -> None:
        self.do(lambda: None, lambda: reached(int(self.board.counter(rank, word)[0]), turn))

    def write_word(self, rank: int, word: Turn, turn: int) -> None:
        def write() -> None:
            self.board.counter(rank, word)[0] = turn

        self.do(write)

    def copy(self, destination: torch.Tensor, source: PeerRegion, start: int) -> None:
        self.move(destination, source.handle[start : start + destination.nbytes])

    def move(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        taken: list[torch.Tensor] = []
        self.do(lambda: taken.append(source.clone()))
        self.do(lambda: destination.copy_(taken[0]))

    def record(self, *, timed: bool = False) -> Mark:
        mark = Mark()
        self.do(lambda: setattr(mark, "passed", True))
        return mark


class Seated(NamedTuple):
    """Of a circle, what a link without meetings asks for."""

    rank: int
    ranks: int


class RandomCard:
    """A device with a compute and a copy stream, as far as `Exchange` knows one, and its end of the link."""

    def __init__(self, rank: int, board: Board, cards: list[RandomCard], link: type[StreamPeerLink]) -> None:
        self.cards = cards
        self.compute, self.copies = RandomStream(board), RandomStream(board)
        self.streams = [self.compute, self.copies]
        self.slots: list[torch.Tensor] = []
        self.link = self._linked(link)(Seated(rank, board.ranks), lambda: self._new_stream(board))

    def copy(self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: Mark | None) -> Mark:
        if after is not None:
            self.copies.wait(after)
        self.copies.move(destination, source)
        return self.copies.record()

    def record(self) -> Mark:
        return self.compute.record()

    def _new_stream(self, board: Board) -> RandomStream:
        self.streams.append(RandomStream(board))
        return self.streams[-1]

    def _linked(self, link: type[StreamPeerLink]) -> Any:
        cards = self.cards

        class Linked(link):  # type: ignore[valid-type, misc]
            """Peers' slots are found where they are; nothing has to be introduced."""

            def allocate(self, nbytes: int) -> torch.Tensor:
                return torch.full((nbytes,), 0xFF, dtype=torch.uint8)

            def free(self, buffer: torch.Tensor) -> None:
                buffer.fill_(0xFF)

            def introduce(self, name: str, buffers: Any) -> list[list[PeerRegion]]:
                return [[PeerRegion(rank, slot.nbytes, slot) for slot in card.slots] for rank, card in enumerate(cards)]

            def _introduce(self, name: str, buffers: Any) -> list[list[PeerRegion]]:
                return self.introduce(name, buffers)

            def region(self, buffer: torch.Tensor) -> PeerRegion:
                return PeerRegion(self.rank, buffer.nbytes, buffer)

            def part(self, name: str, regions: Any) -> None:
                pass

            def close(self) -> None:
                pass

        return Linked


def run_all(cards: list[RandomCard], seed: int) -> None:
    """Until every stream is empty. Raises AssertionError where none can go on."""
    chance = random.Random(seed)
    streams = [stream for card in cards for stream in card.streams]
    while waiting := [stream for stream in streams if stream.queue]:
        able = [stream for stream in waiting if stream.queue[0][0]()]
        assert able, "all streams wait for one another"
        # Runs of one stream, so that some get far ahead of others.
        stream = chance.choice(able)
        for _ in range(chance.choice((1, 1, 3, 30))):
            if stream.queue and stream.queue[0][0]():
                stream.queue.popleft()[1]()
