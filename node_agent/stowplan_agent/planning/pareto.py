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
FEW: Final = 64
"""Rows of a front that all others are compared with at once."""


def undominated(columns: Floats) -> Ints:
    """Indexes of rows of which no other one is nowhere larger; of equal ones the first."""
    columns = columns[:, (columns != columns[:1]).any(axis=0)] if len(columns) else columns
    if not columns.shape[1]:
        return np.arange(min(len(columns), 1))
    order = np.lexsort(columns.T[::-1])
    columns = columns[order]
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
