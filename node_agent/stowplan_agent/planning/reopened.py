"""Rows whose pins are open again: where there are pins enough all is pinned first, and then as little as is needed.

A component of several groups has tens of thousands of shapes that are equally fast, and hundreds of ways to pin each.
Few of these can be part of a selection that locks fewest bytes. So a shape gets its pins only if it can lock few enough
of them and still be fast enough (`openpins.least_locked`), and of its pins only those that lock few enough are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from stowplan_agent.planning.openpins import least_locked, open_points
from stowplan_agent.planning.rows import LOCKED, Rows, distinct, joined
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats, Ints

FEW: Final = 2_000
"""Rows with all their pins up to which all are made at once."""
AT_ONCE: Final = 100_000
"""Rows that are made at once, before those that are too slow are left out."""
FIRST: Final = 1 / 64
"""Share of all bytes that may be locked more than needed in the first look."""


class Reopened:
    """The rows of each component with any pins, of ``pools`` that are pinned whole.

    ``most`` are the seconds that each component may take, ``otherwise`` the bytes that it locks if none of its rows is
    chosen; infinite where one must be.
    """

    def __init__(
        self, spaces: Sequence[Space], pools: Sequence[Rows], most: Sequence[float], otherwise: Sequence[float]
    ) -> None:
        self.spaces, self.pools, self.most = spaces, pools, most
        self.streaming = [
            (rows.shape >= 0) & bool(space.visits.stays) for space, rows in zip(spaces, pools, strict=True)
        ]
        self.needed = [self._needed(component) for component in range(len(pools))]
        """By row: bytes that it locks at least, of all ranks together."""
        self.least = [float(each.min(initial=other)) for each, other in zip(self.needed, otherwise, strict=True)]

    def limits(self) -> Iterator[float]:
        """Locked bytes of a selection to look at, one after the other: the last is no limit."""
        count = sum(self._rows_of(component) for component in range(len(self.pools)))
        if count > FEW and np.isfinite(least := sum(self.least)):
            bytes_ = max(space.frame.weights * float(space.frame.ranks_of.sum()) for space in self.spaces)
            share = FIRST
            while share < 1:
                yield least + share * bytes_
                share *= 4
        yield np.inf

    def within(self, locked: float) -> list[Rows]:
        """All rows that can be part of a selection of at most ``locked`` bytes, and fast enough, exactly priced."""
        return [self._opened(component, locked) for component in range(len(self.pools))]

    def _opened(self, component: int, locked: float) -> Rows:
        space, rows, streaming = self.spaces[component], self.pools[component], self.streaming[component]
        if not bool(streaming.any()):
            return rows
        # Bytes are whole numbers in floats: one more for their rounding.
        left = locked - sum(each for c, each in enumerate(self.least) if c != component) + 1
        shapes = distinct(rows.shape[streaming & (self.needed[component] <= left)])
        parts = [rows.take(~streaming)]
        for some in self._in_turn(space, shapes):
            part = space.pinned(some, max(left, 0.0))
            part = part.take((part.times[:, -1] <= self.most[component]) & (locked_bytes(part) <= left))
            part = space.priced(part)
            parts.append(part.take(part.times[:, -1] <= self.most[component]))
        return joined(parts)

    def _in_turn(self, space: Space, shapes: Ints) -> list[Ints]:
        """The shapes in parts of which each has no more than so many pins."""
        if not len(shapes):
            return []
        part = np.cumsum((space.pricer.table.most[shapes] + 1).prod(axis=1)) // AT_ONCE
        cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(shapes)]
        return [shapes[start:end] for start, end in pairwise(cuts)]

    def _needed(self, component: int) -> Floats:
        space, rows, streaming = self.spaces[component], self.pools[component], self.streaming[component]
        needed = locked_bytes(rows)
        if bool(streaming.any()):
            ranks = space.frame.ranks_of.sum(axis=0)
            points = open_points(space.pricer, space.visits, rows.shape[streaming])
            needed[streaming] = least_locked(points, ranks, self.most[component])
        return needed

    def _rows_of(self, component: int) -> int:
        shapes = distinct(self.pools[component].shape[self.streaming[component]])
        return int((self.spaces[component].pricer.table.most[shapes] + 1).prod(axis=1).sum()) if len(shapes) else 0


def locked_bytes(rows: Rows) -> Floats:
    """Bytes that rows lock on all nodes together, open pins aside."""
    locked: Floats = rows.bytes[:, LOCKED:].sum(axis=1)
    return locked
