"""Many runs of one component at once: the recurrence of `ring` for thousands of ways to stream, side by side.

Each way is a lane. All lanes go through the layers together, one numpy operation for all of them, so 100,000 runs of
60 layers take seconds. The result equals `ring.run_seconds` but for rounding; a test compares them.

What makes it possible: which copy starts after which layer does not depend on times (`schedule`). That needs a ring
that does not run more than one pass ahead: lanes with fewer streamed layers than slots go through `ring` one by one.
So do all lanes where they are few: an operation on a few numbers takes as long as on hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.ring import SAME_STATE, Step, step_seconds
from stowplan_agent.planning.schedule import Schedule, schedule_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MANY: Final = 8
"""Lanes that stream the same layer, on average, from which it takes less time to run all of them side by side."""


class _Start(NamedTuple):
    """A copy that starts where a layer ends, in each lane that has one."""

    place: Ints
    """Where its end is kept."""
    gate: Floats | None
    """0, or minus infinity in lanes that have none; None where all have one."""
    lasting: Floats


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
    each, rings = np.array(seconds), np.array(ring_of)
    ends = np.concatenate([[0.0], np.cumsum(each)])
    result = np.full(streamed.shape[1], passes * (loose + float(ends[-1])))
    if passes <= 0 or not streamed.any():
        return result
    narrow = np.zeros(streamed.shape[1], dtype=np.bool_)
    for ring in range(len(slots)):
        total = streamed[rings == ring].sum(axis=0)
        narrow |= (total > 0) & (total < slots[ring])
    wide = np.flatnonzero(streamed.any(axis=0) & ~narrow)
    if streamed[:, wide].sum() < MANY * streamed[:, wide].any(axis=1).sum():
        narrow[wide], wide = True, wide[:0]
    if narrow.any():
        few = np.flatnonzero(narrow)
        runs = _steps(loose, each, ends, rings, copies[:, few], streamed[:, few])
        result[few] = [
            step_seconds(passes, lead, steps, one, contention)
            for (lead, steps), one in zip(runs, slots[:, few].T.tolist(), strict=True)
        ]
    if len(wide):
        # Layers that no lane streams free no slot and wait for nothing: a stretch of them is one step.
        rows = np.flatnonzero(streamed[:, wide].any(axis=1))
        schedule = schedule_of(streamed[np.ix_(rows, wide)], rings[rows], slots[:, wide])
        gaps = np.append(ends[rows[1:]], ends[-1]) - ends[rows + 1]
        lead = loose + float(ends[rows[0]])
        lanes = _Lanes(lead, each[rows], gaps, copies[np.ix_(rows, wide)], schedule, contention)
        result[wide] = lanes.run(passes)
    return result


def _steps(
    loose: float, seconds: Floats, ends: Floats, rings: Ints, copies: Floats, streamed: Bools
) -> list[tuple[float, list[Step]]]:
    """What `ring.step_seconds` asks for, of lanes that all stream something; ``ends`` are sums of ``seconds``."""
    lane, layer = np.nonzero(streamed.T)
    first = np.r_[True, lane[1:] != lane[:-1]]
    following = np.where(np.r_[first[1:], True], ends[-1], np.r_[ends[layer[1:]], 0.0])
    columns = (rings[layer], copies[layer, lane], seconds[layer], following - ends[layer + 1])
    steps = list(map(Step, *(column.tolist() for column in columns)))
    cuts = [*np.flatnonzero(first).tolist(), len(steps)]
    leads = (loose + ends[layer[first]]).tolist()
    return [(lead, steps[start:end]) for lead, start, end in zip(leads, cuts[:-1], cuts[1:], strict=True)]


class _Lanes:
    """The state of both engines in every lane. Times count from the start of the pass that runs."""

    def __init__(
        self, lead: float, seconds: Floats, gaps: Floats, copies: Floats, schedule: Schedule, contention: float
    ) -> None:
        lanes = copies.shape[1]
        self.lead, self.layers = lead, list(zip(seconds.tolist(), gaps.tolist(), strict=True))
        """Compute of a pass before the first layer; and of each layer, and from its end to the next one."""
        self.slower, self.share = contention, 1 - 1 / contention
        filled = np.where(schedule.wrapped, copies, 0.0)
        self.ready = np.vstack([np.where(schedule.wrapped, np.cumsum(filled, axis=0), 0.0), np.zeros((1, lanes))])
        """Ends of the copies that no layer has used yet; the last row is for copies that there are not."""
        self.copied = filled.sum(axis=0)
        self.now, self.beside = np.zeros(lanes), np.zeros(lanes)
        self.lasting = np.vstack([copies, np.zeros((1, lanes))])
        self.starts = schedule.starts

    def run(self, passes: int) -> Floats:
        total = np.zeros(len(self.now))
        starts = self._starts()
        before: Floats | None = None
        for done in range(1, passes):
            took = self._pass(starts)
            total += took
            state = np.vstack([self.copied, self.ready])
            # The pass that led from a state back to it is the pass that follows as well.
            if before is not None and bool((np.abs(state - before) <= SAME_STATE * took).all()):
                total += (passes - 1 - done) * took
                break
            before = state
        return total + self._pass(self._last(starts))

    def _starts(self) -> list[list[_Start]]:
        """For each layer, the copies that start at its end."""
        dump, lanes = self.ready.shape[0] - 1, len(self.now)
        column, lasting = np.arange(lanes), self.lasting.reshape(-1)
        found = []
        for row in self.starts:
            copies = []
            for to in row:
                place = to * lanes + column
                gate = np.where(to < dump, 0.0, -np.inf) if (to == dump).any() else None
                copies.append(_Start(place, gate, lasting[place]))
            found.append(copies)
        return found

    def _last(self, starts: list[list[_Start]]) -> list[list[_Start]]:
        """The same for the last pass: nothing is copied for a pass after it."""
        dump, lanes = (self.ready.shape[0] - 1) * len(self.now), np.arange(len(self.now))
        found = []
        for layer, row in enumerate(starts):
            copies = []
            for place, gate, lasting in row:
                closed = place < (layer + 1) * len(lanes)
                if closed.any():
                    shut = np.where(closed, -np.inf, 0.0 if gate is None else gate)
                    copies.append(_Start(np.where(closed, dump + lanes, place), shut, np.where(closed, 0.0, lasting)))
                else:
                    copies.append(_Start(place, gate, lasting))
            found.append(copies)
        return found

    def _pass(self, starts: list[list[_Start]]) -> Floats:
        now, copied, ready = self.now, self.copied, self.ready
        places = ready.reshape(-1)
        now[:] = 0.0
        self._compute(self.lead)
        for layer, (seconds, gap) in enumerate(self.layers):
            np.maximum(now, ready[layer], out=now)
            self._compute(seconds)
            for place, gate, lasting in starts[layer]:
                np.maximum(copied, now if gate is None else now + gate, out=copied)
                copied += lasting
                places[place] = copied
            if gap:
                self._compute(gap)
        copied -= now
        np.maximum(copied, 0.0, out=copied)
        ready -= now
        np.maximum(ready, 0.0, out=ready)
        ready[-1] = 0.0
        return now.copy()

    def _compute(self, seconds: float) -> None:
        if self.share:
            beside = np.subtract(self.copied, self.now, out=self.beside)
            np.maximum(beside, 0.0, out=beside)
            np.minimum(beside, seconds * self.slower, out=beside)
            beside *= self.share
            self.now += seconds
            self.now += beside
        else:
            self.now += seconds
