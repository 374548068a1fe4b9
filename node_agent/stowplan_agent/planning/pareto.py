"""Rows of numbers of which no other one is nowhere larger.

What is nowhere better than something else wins nothing that counts numbers: pruning it loses no best one. Only
canonical texts, the last tie-break, do not follow; `ties` looks at all rows again for them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stowplan_agent.planning.table import Bools, Floats, Ints

BLOCK: Final = 128
"""Rows that are compared with each other at once."""
STEP: Final = 512
"""Rows of a staircase that are compared with each other at once."""
FEW: Final = 64
"""Rows of a front that all others are compared with at once."""


def undominated(columns: Floats) -> Ints:
    """Indexes of rows of which no other one is nowhere larger; of equal ones the first."""
    columns = _distinct(columns)
    if not len(columns) or not columns.shape[1]:
        return np.arange(min(len(columns), 1))
    order = np.lexsort(columns.T[::-1])
    columns = columns[order]
    # In this order only rows before a row can be nowhere larger, and their first number never is.
    if columns.shape[1] <= 3:
        return np.sort(order[_steps(columns)])
    columns = np.ascontiguousarray(columns[:, 1:])
    kept: list[Ints] = []
    front = columns[:0]
    for start in range(0, len(columns), BLOCK):
        block = columns[start : start + BLOCK]
        alive = np.flatnonzero(~covered(front, block))
        block = block[alive]
        inner = np.tri(len(block), k=-1, dtype=np.bool_)
        for column in block.T:
            inner &= column <= column[:, None]
        alive = alive[~inner.any(axis=1)]
        kept.append(order[start + alive])
        front = np.concatenate([front, columns[start + alive]])
    return np.sort(np.concatenate(kept)) if kept else np.empty(0, dtype=np.int64)


def _distinct(columns: Floats) -> Floats:
    """Without columns that decide nothing: all one number, or the same as the column before."""
    if not len(columns):
        return columns
    kept = (columns != columns[:1]).any(axis=0)
    kept[1:] &= (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    return columns[:, kept]


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
        some, low = across[start : start + STEP], least[start : start + STEP]
        index = np.flatnonzero(~(floors[np.searchsorted(edges, some, side="right")] <= low))
        if not len(index):
            continue
        x, y = some[index], low[index]
        inner = np.tri(len(index), k=-1, dtype=np.bool_)
        inner &= x <= x[:, None]
        inner &= y <= y[:, None]
        index = index[~inner.any(axis=1)]
        alive[start + index] = True
        x, y = np.concatenate([edges, some[index]]), np.concatenate([floors[1:], low[index]])
        sorted_ = np.argsort(x, kind="stable")
        edges, floors = x[sorted_], np.concatenate([[np.nan], np.minimum.accumulate(y[sorted_])])
    return alive


def covered(front: Floats, rows: Floats) -> Bools:
    """Whether some row of ``front`` is nowhere larger, for each of ``rows``."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for start in range(0, len(front), FEW):
        left = np.flatnonzero(~found)
        part, open_ = front[start : start + FEW], rows[left]
        mask = part[:, 0] <= open_[:, :1]
        for column in range(1, rows.shape[1]):
            mask &= part[:, column] <= open_[:, column, None]
        found[left[mask.any(axis=1)]] = True
    return found
