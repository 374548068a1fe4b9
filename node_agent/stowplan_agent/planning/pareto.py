"""Rows of numbers of which no other one is nowhere larger.

What is nowhere better than something else wins nothing that counts numbers: pruning it loses no best one. Only
canonical texts, the last tie-break, do not follow; `ties` looks at all rows again for them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.table import Bools, Floats, Ints

BLOCK: Final = 128
"""Rows that are compared with each other at once."""
STEP: Final = 512
"""Rows that are held against a staircase at once."""
FEW: Final = 256
"""Rows of a front that all others are compared with at once."""
HANDFUL: Final = 32
"""Rows up to which all pairs are compared at once."""
EARLIER: Final[Bools] = np.tri(BLOCK, k=-1, dtype=np.bool_)
"""Row by row: whether the second one comes first."""
SMALL: Final = 1 << 15
"""Ranks below this fit 16 bits."""

Numbers = npt.NDArray[Any]


def undominated(columns: Floats) -> Ints:
    """Indexes of rows of which no other one is nowhere larger; of equal ones the first."""
    if len(columns) <= HANDFUL:
        return _of_few(columns)
    columns = _distinct(columns)
    if not columns.shape[1]:
        return np.arange(1)
    order = np.lexsort(columns.T[::-1])
    columns = columns[order]
    # In this order only rows before a row can be nowhere larger, and their first number never is.
    if len(columns) <= BLOCK:
        return np.sort(order[_first_of(columns.T[1:])])
    if columns.shape[1] <= 3:
        return np.sort(order[_steps(columns)])
    ranks = _ranks(columns[:, 1:])
    front, size = np.empty_like(ranks), 0
    kept: list[Ints] = []
    for start in range(0, len(columns), BLOCK):
        block = ranks[:, start : start + BLOCK]
        alive = np.flatnonzero(~_covered(front[:, :size], block))
        alive = alive[_first_of(block[:, alive])]
        front[:, size : size + len(alive)] = block[:, alive]
        size += len(alive)
        kept.append(order[start + alive])
    return np.sort(np.concatenate(kept))


def _of_few(columns: Floats) -> Ints:
    """`undominated` of so few rows that to compare all pairs is the least work."""
    if len(columns) < 2:
        return np.arange(len(columns))
    no_larger = np.ones((len(columns), len(columns)), dtype=np.bool_)
    for column in columns.T:
        no_larger &= column[:, None] <= column
    equal = no_larger & no_larger.T
    no_larger ^= equal
    no_larger |= equal & EARLIER[: len(columns), : len(columns)].T
    return np.logical_not(no_larger.any(axis=0)).nonzero()[0]


def _distinct(columns: Floats) -> Floats:
    """Without columns that decide nothing: all one number, or the same as the column before."""
    kept = (columns != columns[:1]).any(axis=0)
    kept[1:] &= (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    return columns[:, kept]


def _ranks(columns: Floats) -> Numbers:
    """Column by row: numbers in the same order, short ones, of which many are compared at once."""
    columns = columns.T
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, axis=1)
    steps = np.zeros(columns.shape, dtype=np.int16 if columns.shape[1] < SMALL else np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=steps[:, 1:])
    ranks = np.empty_like(steps)
    np.put_along_axis(ranks, order, steps, axis=1)
    return ranks


def _first_of(columns: Numbers) -> Bools:
    """At most `BLOCK` rows, column by row: those of which none before them is nowhere larger."""
    earlier = EARLIER[: columns.shape[1], : columns.shape[1]].copy()
    for column in columns:
        earlier &= column <= column[:, None]
    return np.logical_not(earlier.any(axis=1))


def _steps(columns: Floats) -> Bools:
    """`undominated` of rows of one to three numbers in their order: what came before is a falling staircase."""
    alive = np.zeros(len(columns), dtype=np.bool_)
    least = columns[:, -1]
    if columns.shape[1] < 3:
        alive[0] = True
        alive[1:] = least[1:] < np.minimum.accumulate(least)[:-1]
        return alive
    across, edges, floors = columns[:, 1], np.empty(0), np.array([np.nan])
    for start in range(0, len(columns), STEP):
        index = np.arange(start, min(start + STEP, len(columns)))
        while True:
            index = index[~(floors[np.searchsorted(edges, across[index], side="right")] <= least[index])]
            if not len(index):
                break
            some = index[:BLOCK]
            some = some[_first_of(columns[some].T[1:])]
            alive[some] = True
            x, y = np.concatenate([edges, across[some]]), np.concatenate([floors[1:], least[some]])
            sorted_ = np.argsort(x, kind="stable")
            edges, floors = x[sorted_], np.concatenate([[np.nan], np.minimum.accumulate(y[sorted_])])
            index = index[BLOCK:]
    return alive


def covered(front: Floats, rows: Floats) -> Bools:
    """Whether some row of ``front`` is nowhere larger, for each of ``rows``."""
    return _covered(np.ascontiguousarray(front.T), np.ascontiguousarray(rows.T))


def _covered(front: Numbers, rows: Numbers) -> Bools:
    """`covered`, column by row."""
    found = np.zeros(rows.shape[1], dtype=np.bool_)
    left = np.arange(rows.shape[1])
    for start in range(0, front.shape[1], FEW):
        part = front[:, start : start + FEW]
        mask = part[0] <= rows[0, :, None]
        for one, other in zip(part[1:], rows[1:], strict=True):
            mask &= one <= other[:, None]
        hit = mask.any(axis=1)
        if hit.any():
            found[left[hit]] = True
            left, rows = left[~hit], rows[:, ~hit]
            if not len(left):
                break
    return found
