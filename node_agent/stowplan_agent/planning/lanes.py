"""Many runs of one component at once: the recurrence of `ring` for thousands of ways to stream, side by side.

Each way is a lane. All lanes go through the layers together, one numpy operation for all of them, so 100,000 runs of
60 layers take seconds. The result equals `ring.run_seconds` but for rounding; a test compares them.

What makes it possible: which copy starts after which layer does not depend on times. Copies start in the order of
their use, each as soon as the layer that had its slot has ended, so the starts are worked out once in whole numbers
(`schedule_of`), and only the times are simulated. That needs a ring that does not run more than one pass ahead: lanes
with fewer streamed layers than slots go through `ring` one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.ring import SAME_STATE, Layer, run_seconds

Floats = npt.NDArray[np.float64]
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


def schedule_of(streamed: Bools, ring_of: Sequence[int], slots: Ints) -> Schedule:
    """The copies of lanes that stream ``streamed`` (layer by lane) through rings of ``slots`` (ring by lane).

    ``ring_of`` gives the ring of each layer. A ring that streams must stream at least as many layers as it has slots.
    """
    layers, lanes = streamed.shape
    position = np.cumsum(streamed, axis=0) - 1
    count = position[-1] + 1
    freed = np.full((layers, lanes), -layers, dtype=np.int64)
    for ring in range(len(slots)):
        rows = np.array([layer for layer in range(layers) if ring_of[layer] == ring], dtype=np.int64)
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
    order = np.lexsort((following, after, lane))
    row, lane, after = row[order], lane[order], after[order]
    first = np.r_[True, (lane[1:] != lane[:-1]) | (after[1:] != after[:-1])]
    number = np.arange(len(row)) - np.maximum.accumulate(np.where(first, np.arange(len(row)), 0))
    table = np.full((int(number.max(initial=-1)) + 1, layers, lanes), layers, dtype=np.int64)
    table[number, after, lane] = row
    used = (table < layers).any(axis=2)
    return tuple(tuple(table[n, layer] for n in range(len(table)) if used[n, layer]) for layer in range(layers))


def lane_seconds(
    passes: int,
    loose: float,
    seconds: Sequence[float],
    ring_of: Sequence[int],
    slots: Ints,
    copies: Floats,
    streamed: Bools,
    contention: float,
) -> Floats:
    """Seconds of ``passes`` passes of each lane, from cold rings to the end of the last layer.

    ``seconds`` is the compute of each layer and ``loose`` what comes before the first; ``copies`` (layer by lane) is
    the time of each copy. The other arguments are those of `schedule_of`.
    """
    result = np.full(streamed.shape[1], passes * (loose + sum(seconds)))
    narrow = np.zeros(streamed.shape[1], dtype=np.bool_)
    for ring in range(len(slots)):
        total = sum(streamed[layer].astype(np.int64) for layer in range(len(seconds)) if ring_of[layer] == ring)
        narrow |= (total > 0) & (total < slots[ring])
    for lane in np.flatnonzero(narrow):
        layers = [
            Layer(each, ring_of[i] if streamed[i, lane] else -1, float(copies[i, lane]))
            for i, each in enumerate(seconds)
        ]
        result[lane] = run_seconds(passes, loose, layers, [int(one) for one in slots[:, lane]], contention)
    wide = np.flatnonzero(streamed.any(axis=0) & ~narrow)
    if len(wide) and passes > 0:
        schedule = schedule_of(streamed[:, wide], ring_of, slots[:, wide])
        run = _Lanes(loose, seconds, np.ascontiguousarray(copies[:, wide]), schedule, contention)
        result[wide] = run.run(passes)
    return result


class _Lanes:
    """The state of both engines in every lane. Times count from the start of the pass that runs."""

    def __init__(
        self, loose: float, seconds: Sequence[float], copies: Floats, schedule: Schedule, contention: float
    ) -> None:
        layers, lanes = copies.shape
        self.loose, self.seconds = loose, seconds
        self.slower, self.share = contention, 1 - 1 / contention
        self.column = np.arange(lanes)
        filled = np.where(schedule.wrapped, copies, 0.0)
        self.ready = np.vstack([np.where(schedule.wrapped, np.cumsum(filled, axis=0), 0.0), np.zeros((1, lanes))])
        """Ends of the copies that no layer has used yet; the last row is for copies that there are not."""
        self.copied = filled.sum(axis=0)
        lasting = np.vstack([copies, np.zeros((1, lanes))])
        self.starts = [
            [(to, np.where(to < layers, 0.0, -np.inf), lasting[to, self.column]) for to in row]
            for row in schedule.starts
        ]
        """For each layer, what is copied after it, 0 (or minus infinity where nothing is), and how long it takes."""

    def run(self, passes: int) -> Floats:
        total = np.zeros(len(self.column))
        before: Floats | None = None
        for done in range(1, passes):
            took = self._pass(last=False)
            total += took
            state = np.vstack([took, self.copied, self.ready])
            if before is not None and bool((np.abs(state - before) <= SAME_STATE * took).all()):
                total += (passes - 1 - done) * took
                break
            before = state
        return total + self._pass(last=True)

    def _pass(self, *, last: bool) -> Floats:
        ready, copied = self.ready, self.copied
        now = self._compute(np.zeros(len(self.column)), self.loose)
        for layer, seconds in enumerate(self.seconds):
            now = self._compute(np.maximum(now, ready[layer]), seconds)
            for to, gate, lasting in self.starts[layer]:
                closed = np.where(to > layer, gate, -np.inf) if last else gate
                copied = self.copied = np.maximum(copied, now + closed) + (
                    np.where(np.isneginf(closed), 0.0, lasting) if last else lasting
                )
                ready[to, self.column] = copied
        self.copied = np.maximum(self.copied - now, 0.0)
        self.ready = np.maximum(ready - now, 0.0)
        self.ready[-1] = 0.0
        return now

    def _compute(self, now: Floats, seconds: float) -> Floats:
        if not self.share:
            return now + seconds
        beside = np.clip(self.copied - now, 0.0, seconds * self.slower)
        later: Floats = now + seconds + beside * self.share
        return later
