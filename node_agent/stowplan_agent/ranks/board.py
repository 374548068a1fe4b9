"""One page of memory a rank that all ranks of a replica and their supervisor see.

Two things are written here because a message would come too late. The turns of the exchange: a GPU's streams read and
write them by themselves, so that no host waits for another rank's host (`peers.cuda`). And what a rank is doing: it can
be read after the rank has died. Every word has one writer, its rank; `release` is the one exception, for the end.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from typing import Final

import numpy as np

ROW: Final = mmap.PAGESIZE
_TEXT: Final = 512  # where a row's text begins, and how long it is
_MOMENTS: Final = 1024
REMEMBERED: Final = 64
"""Turns whose moments are kept: more than ranks can be apart, which is the slots of all rings."""
_RELEASED: Final = ROW - 1  # a byte of the first row
_FAR: Final = 1 << 30
_WORD: Final = 1 << 32


class Turn(IntEnum):
    """The counters of a rank, by their place. Each counts turns of the exchange, from 1, and wraps at 2^32."""

    FETCHED = 0
    """Turns whose own share has arrived on this rank's device."""
    SWAPPED = 128  # a cache line of its own
    """Turns for which this rank has copied every peer's share, so that the peers may write over theirs."""


def reached(value: int, turn: int) -> bool:
    """Whether a counter that wraps has come to a turn: the comparison that the GPU makes, too."""
    return (value - turn) % _WORD < _WORD // 2


class Board:
    """The rows of all ranks. Made by the supervisor, opened by each rank from the descriptor that it was given."""

    def __init__(self, descriptor: int, ranks: int) -> None:
        """Map an open descriptor of `make`; it may be closed afterwards."""
        self.descriptor = descriptor
        self.ranks = ranks
        self.memory = np.frombuffer(mmap.mmap(descriptor, ranks * ROW), dtype=np.uint8)
        """All rows, one after another: for whoever registers them with a driver."""

    @classmethod
    def make(cls, ranks: int) -> Board:
        """A new one, all zeros. It is gone when the last process that has it is."""
        descriptor = os.memfd_create("stowplan-board")
        os.ftruncate(descriptor, ranks * ROW)
        return cls(descriptor, ranks)

    def counter(self, rank: int, turn: Turn) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """One counter, as an array of one element that can be read and written."""
        start = rank * ROW + turn
        return self.memory[start : start + 4].view(np.uint32)

    def moments(self, rank: int, turn: Turn) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """The last turns, by number modulo `REMEMBERED`: a turn's number, and when it is over on an emulated clock."""
        start = rank * ROW + _MOMENTS + (0 if turn is Turn.FETCHED else REMEMBERED * 16)
        return self.memory[start : start + REMEMBERED * 16].view(np.float64).reshape(REMEMBERED, 2)

    def release(self) -> None:
        """Let every turn count as reached, so that no stream waits for a rank that is gone: before all are ended.

        Doing so again changes nothing: counters that wrap must not be pushed on twice.
        """
        if self.memory[_RELEASED]:
            return
        self.memory[_RELEASED] = 1
        for rank in range(self.ranks):
            for turn in Turn:
                self.counter(rank, turn)[0] += np.uint32(_FAR)

    def say(self, rank: int, doing: str) -> None:
        """Write down what a rank is doing, for whoever must explain its end. Cut where it is too long."""
        text = doing.encode()[: _TEXT - 1]
        row = self.memory[rank * ROW + _TEXT : rank * ROW + 2 * _TEXT]
        row[: len(text) + 1] = np.frombuffer(text + b"\0", dtype=np.uint8)

    def doing(self, rank: int) -> str:
        """What a rank said last; empty if it said nothing."""
        row = self.memory[rank * ROW + _TEXT : rank * ROW + 2 * _TEXT].tobytes()
        return row.partition(b"\0")[0].decode(errors="replace")
