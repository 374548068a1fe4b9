"""Which copy starts after which layer: whole numbers, the same whatever anything takes.

Copies start in the order of their use, each as soon as the layer that had its slot has ended and all copies before it
have started. So the starts of many runs are worked out once, side by side, and `lanes` simulates only their times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which copies start when. Arrays have one column a lane."""

    wrapped: Bools
    """Layer by lane: the copy starts in the pass before (in the first pass: before it)."""
    starts: tuple[tuple[Ints, ...], ...]
    """For each layer, for each copy that may start at its end: the layer that is copied; the number of layers where
    none is."""


def schedule_of(streamed: Bools, ring_of: Ints, slots: Ints) -> Schedule:
    """The copies of lanes that stream ``streamed`` (layer by lane) through rings of ``slots`` (ring by lane).

    ``ring_of`` gives the ring of each layer. A ring that streams must stream at least as many layers as it has slots.
    """
    layers, lanes = streamed.shape
    if lanes > 1 and (streamed == streamed[:, :1]).all() and (slots == slots[:, :1]).all():
        # Lanes that differ in the times of their copies only.
        one = schedule_of(streamed[:, :1], ring_of, slots[:, :1])
        starts = tuple(tuple(np.repeat(to, lanes) for to in row) for row in one.starts)
        return Schedule(np.repeat(one.wrapped, lanes, axis=1), starts)
    position = np.cumsum(streamed, axis=0) - 1
    count = position[-1] + 1
    freed = np.full((layers, lanes), -layers, dtype=np.int64)
    for ring in range(len(slots)):
        rows = np.flatnonzero(ring_of == ring)
        if not len(rows):
            continue
        mine = streamed[rows]
        order = np.cumsum(mine, axis=0) - 1
        total = order[-1] + 1
        held = np.zeros((len(rows), lanes), dtype=np.int64)
        row, lane = np.nonzero(mine)
        held[order[row, lane], lane] = position[rows[row], lane]
        before = order[row, lane] - slots[ring, lane]
        early = before < 0
        place = held[np.where(early, before + total[lane], before), lane] - np.where(early, count[lane], 0)
        freed[rows[row], lane] = place
    # A copy that has no slot holds up all behind it, also those of the next pass.
    begun = np.maximum(np.maximum.accumulate(freed, axis=0), freed.max(axis=0) - count)
    wrapped = streamed & (begun < 0)
    return Schedule(wrapped, _starts(streamed, position, count, np.where(begun < 0, begun + count, begun)))


def _starts(streamed: Bools, position: Ints, count: Ints, begun: Ints) -> tuple[tuple[Ints, ...], ...]:
    """Copies by the layer at whose end they start, those of this pass before those of the next."""
    layers, lanes = streamed.shape
    layer_at = np.zeros((layers + 1, lanes), dtype=np.int64)
    row, lane = np.nonzero(streamed)
    layer_at[position[row, lane], lane] = row
    after = layer_at[begun[row, lane], lane]
    following = np.where(row <= after, row + layers, row)
    order = np.argsort((lane * layers + after) * (2 * layers) + following)
    row, lane, after = row[order], lane[order], after[order]
    first = np.r_[True, (lane[1:] != lane[:-1]) | (after[1:] != after[:-1])]
    number = np.arange(len(row)) - np.maximum.accumulate(np.where(first, np.arange(len(row)), 0))
    table = np.full((int(number.max(initial=-1)) + 1, layers, lanes), layers, dtype=np.int64)
    table[number, after, lane] = row
    used = (table < layers).any(axis=2)
    return tuple(tuple(table[n, layer] for n in range(len(table)) if used[n, layer]) for layer in range(layers))
