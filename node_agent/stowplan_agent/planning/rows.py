"""Options of one component as rows of numbers.

A row is one entry that the component may have, or what no such entry can be better than: its seconds may still be a
lower bound, and its pins may still be open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from stowplan_agent.planning.table import Bools, Floats, Ints

RESIDENT: Final = -1
ELASTIC: Final = -2
"""Offload whose pinned bytes the selection still chooses."""
OFFLOAD: Final = -3
"""Offload with the pinned bytes of each link class in ``pins``."""
CURRENT: Final = -4
"""The current entry."""
PREFETCH: Final = -5
"""Offload with prefetch whose pinned bytes the selection still chooses."""
PREFETCH_PINNED: Final = -6
"""Offload with prefetch and the pinned bytes of each link class in ``pins``."""
PREFETCHES: Final = (PREFETCH, PREFETCH_PINNED)
"""The last ones: whatever prefetches and is not the current entry is at most `PREFETCH`."""
A_PREFETCH: Final = 1 / 64
"""Of a change: what a prefetch counts. There are at most 32 components, so it decides between equal changes only."""
OPEN_PINS: Final = (ELASTIC, PREFETCH)

ALWAYS, OWN, HOST, LOCKED = 0, 1, 2, 3
"""Columns of ``bytes``; locked bytes have one column a node, from `LOCKED` on."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns with one entry a row."""

    bytes: Floats
    """Row by column: always on the device, also in own intervals, host copy a rank, locked on each node."""
    times: Floats
    """Row by price: seconds of a request, averaged over workloads, plus locked bytes times the price. All the same but
    for an elastic row, and for one behind which something elastic is prefetched."""
    shape: Ints
    """Index into the shape table, or one of the constants above."""
    pins: Ints
    """Row by group by link class: pinned layers, or bytes of an Offload."""
    priced: Bools
    """Whether the seconds are exact; if not, they are a lower bound."""
    open: Bools
    """Whether the row stands for all choices of pins of its shape."""

    def __len__(self) -> int:
        return len(self.shape)

    def take(self, index: Ints | Bools) -> Rows:
        """Some of the rows."""
        # Whole numbers, worked out once: numpy would look through a mask again for each column, many times as slowly.
        places = index.nonzero()[0] if index.dtype == np.bool_ else index
        return Rows(
            self.bytes.take(places, axis=0),
            self.times.take(places, axis=0),
            self.shape.take(places),
            self.pins.take(places, axis=0),
            self.priced.take(places),
            self.open.take(places),
        )

    def after(self, count: int) -> Rows:
        """All rows but the first ``count``, in the same memory."""
        return Rows(*(getattr(self, name)[count:] for name in COLUMNS))


COLUMNS: Final = tuple(one.name for one in fields(Rows))


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows of ``parts``, in order."""
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))


def least(values: Floats, count: int) -> Ints:
    """Indexes of the ``count`` smallest values, in their order; of equal ones those that come first."""
    if count >= len(values):
        return np.argsort(values, kind="stable")
    # As many stretches have nothing larger than this: so have as many values.
    stretch = max(len(values) // max(4 * count, 1), 1)
    first = values[: len(values) // stretch * stretch].reshape(-1, stretch).min(axis=1)
    index = np.flatnonzero(values <= np.partition(first, count - 1)[count - 1])
    return index[np.argsort(values[index], kind="stable")][:count]


def distinct(values: Ints) -> Ints:
    """The values, sorted, each once: `numpy.unique` without the module that it loads."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
