"""Pinned bytes of an Offload: any whole number, so the selection leaves them open and divides them last.

Bringing a component in takes as long as its slowest rank. The seconds fall with the bytes that a node locks for it,
the steepest part first: while only the slowest ranks pin, each byte saves most. That curve is a few straight pieces,
so an Offload is one row whatever its pins: at a price a byte it pins exactly the pieces that save more than the price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from stowplan_agent.planning.links import RankLink
from stowplan_agent.planning.table import Floats

ALMOST: Final = 1e-3
"""Bytes that are lost in rounding."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A straight piece of the curve."""

    bytes: float
    """Locked bytes of a node from its start to its end."""
    worth: float
    """Seconds of a request that each of them saves."""


class Curve:
    """Seconds of all loads of one component against the bytes that each node locks for it.

    ``ranks`` is how many ranks of each link class lock bytes of their own on a node, ``loads`` how often a request
    brings the component in.
    """

    def __init__(self, total: int, links: Sequence[RankLink], ranks: Floats, loads: float) -> None:
        self.total = total
        self.loads = loads
        self.slow = [link.load_seconds(0, total) for link in links]
        self.fast = [min(link.load_seconds(total, 0), slow) for link, slow in zip(links, self.slow, strict=True)]
        self.ranks = ranks
        self.rates = [
            float(count) * total / (slow - fast) if slow > fast else 0.0
            for count, slow, fast in zip(ranks, self.slow, self.fast, strict=True)
        ]
        """By link class: bytes that a node locks for loads over it that take a second less."""
        here = [k for k in range(len(links)) if ranks[k]]
        self.longest = max(self.slow[k] for k in here)
        """Seconds of one load with nothing pinned."""
        self.shortest = max(self.fast[k] for k in here)
        self.pieces: list[Piece] = []
        self._falls: list[float] = []
        ends = sorted({self.slow[k] for k in here} | {self.shortest}, reverse=True)
        for high, low in pairwise(ends):
            if low < self.shortest:
                break
            pinning = [k for k in here if self.slow[k] >= high and self.slow[k] > self.fast[k]]
            rate = sum(self.rates[k] for k in pinning)
            self.pieces.append(Piece(rate * (high - low), loads / rate))
            self._falls.append(high - low)

    @property
    def most(self) -> float:
        """Locked bytes of a node beyond which nothing is saved."""
        return sum(piece.bytes for piece in self.pieces)

    def at_price(self, price: float) -> float:
        """Least seconds of all loads plus ``price`` times locked bytes."""
        return self.loads * self.longest - sum(max(one.worth - price, 0.0) * one.bytes for one in self.pieces)

    def pins(self, locked: float) -> tuple[int, ...]:
        """Pinned bytes of a rank of each link class when a node locks ``locked`` bytes."""
        time = self.longest
        for piece, fall in zip(self.pieces, self._falls, strict=True):
            taken = min(locked, piece.bytes)
            time -= fall * taken / piece.bytes if piece.bytes else 0.0
            locked -= taken
        found = []
        for slow, fast, ranks in zip(self.slow, self.fast, self.ranks, strict=True):
            share = (slow - time) / (slow - fast) if ranks and slow > fast else 0.0
            found.append(whole_bytes(share, self.total))
        return tuple(found)


def whole_bytes(share: float, total: int) -> int:
    """Whole bytes in a share, from 0 to 1, of ``total``: one that is whole but for rounding is, others are cut."""
    return int(np.clip(np.floor(share * total + ALMOST), 0, total))
