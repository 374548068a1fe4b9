"""Rows of numbers of which no other one is nowhere larger.

What is nowhere better than something else wins nothing that counts numbers: pruning it loses no best one. Only
canonical texts, the last tie-break, do not follow; `ties` looks at all rows again for them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stowplan_agent.planning.table import Bools, Floats, Ints

BLOCK: Final = 256
"""Rows that are compared at once."""


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
        inner = (block[None, :, :] <= block[:, None, :]).all(axis=2)
        inner &= np.tri(len(block), k=-1, dtype=np.bool_)
        alive = alive[~inner.any(axis=1)]
        kept.append(order[start + alive])
        front = np.concatenate([front, columns[start + alive]])
    return np.sort(np.concatenate(kept)) if kept else np.empty(0, dtype=np.int64)


def covered(front: Floats, block: Floats) -> Bools:
    """Whether some row of ``front`` is nowhere larger, for each row of ``block``."""
    found = np.zeros(len(block), dtype=np.bool_)
    for start in range(0, len(front), BLOCK):
        part = front[start : start + BLOCK]
        mask = part[None, :, 0] <= block[:, None, 0]
        for column in range(1, block.shape[1]):
            mask &= part[None, :, column] <= block[:, None, column]
        found |= mask.any(axis=1)
    return found
