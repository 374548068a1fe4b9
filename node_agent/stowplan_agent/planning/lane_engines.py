"""Copies and compute of many runs at once: one numpy operation for all lanes at each step of `ring`'s recurrence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.ring import SAME_STATE
from stowplan_agent.planning.schedule import Schedule

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class _Start(NamedTuple):
    """A copy that starts where a layer ends, in each lane that has one."""

    place: Ints
    """Where its end is kept."""
    gate: Floats | None
    """0, or minus infinity in lanes that have none; None where all have one."""
    lasting: Floats
    """Seconds of the host link."""
    swapping: Floats | None
    """Seconds of the peer link; None where there is none."""


class LaneEngines:
    """The state of all engines in every lane. Times count from the start of the pass that runs."""

    def __init__(
        self,
        lead: float,
        seconds: Floats,
        gaps: Floats,
        copies: Floats,
        swaps: Floats | None,
        schedule: Schedule,
        contention: float,
    ) -> None:
        """Arguments as in `lanes.lane_seconds`, of the layers that some lane brings in."""
        lanes = copies.shape[1]
        self.lead, self.layers = lead, list(zip(seconds.tolist(), gaps.tolist(), strict=True))
        """Compute of a pass before the first layer; and of each layer, and from its end to the next one."""
        self.slower, self.share = contention, 1 - 1 / contention
        filled = np.where(schedule.wrapped, copies, 0.0)
        ends = np.cumsum(filled, axis=0)
        self.fetched = filled.sum(axis=0)
        """On the host link, end of the last copy that has a slot."""
        self.swapped: Floats | None = None
        """The same on the peer link, if there is one."""
        self.copied = self.fetched
        """On both."""
        self.swapping: Floats | None = None
        if swaps is not None:
            crossing = np.where(schedule.wrapped, swaps, 0.0)
            ends = np.maximum(ends, np.cumsum(crossing, axis=0))
            self.swapped = crossing.sum(axis=0)
            self.copied = np.maximum(self.fetched, self.swapped)
            self.swapping = np.vstack([swaps, np.zeros((1, lanes))])
        self.ready = np.vstack([np.where(schedule.wrapped, ends, 0.0), np.zeros((1, lanes))])
        """Ends of the copies that no layer has used yet; the last row is for copies that there are not."""
        self.now, self.beside = np.zeros(lanes), np.zeros(lanes)
        self.lasting = np.vstack([copies, np.zeros((1, lanes))])
        self.starts = schedule.starts

    def run(self, passes: int) -> Floats:
        """Seconds of so many passes, at least 1."""
        total = np.zeros(len(self.now))
        starts = self._starts()
        before: Floats | None = None
        for done in range(1, passes):
            took = self._pass(starts)
            total += took
            links = [self.fetched] if self.swapped is None else [self.fetched, self.swapped]
            state = np.vstack([*links, self.ready])
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
        swapping = None if self.swapping is None else self.swapping.reshape(-1)
        found = []
        for row in self.starts:
            copies = []
            for to in row:
                place = to * lanes + column
                gate = np.where(to < dump, 0.0, -np.inf) if (to == dump).any() else None
                copies.append(_Start(place, gate, lasting[place], None if swapping is None else swapping[place]))
            found.append(copies)
        return found

    def _last(self, starts: list[list[_Start]]) -> list[list[_Start]]:
        """The same for the last pass: nothing is copied for a pass after it."""
        dump, lanes = (self.ready.shape[0] - 1) * len(self.now), np.arange(len(self.now))
        found = []
        for layer, row in enumerate(starts):
            copies = []
            for place, gate, lasting, swapping in row:
                closed = place < (layer + 1) * len(lanes)
                if closed.any():
                    shut = np.where(closed, -np.inf, 0.0 if gate is None else gate)
                    swap = None if swapping is None else np.where(closed, 0.0, swapping)
                    nowhere, fetch = np.where(closed, dump + lanes, place), np.where(closed, 0.0, lasting)
                    copies.append(_Start(nowhere, shut, fetch, swap))
                else:
                    copies.append(_Start(place, gate, lasting, swapping))
            found.append(copies)
        return found

    def _pass(self, starts: list[list[_Start]]) -> Floats:
        now, fetched, swapped, copied, ready = self.now, self.fetched, self.swapped, self.copied, self.ready
        places = ready.reshape(-1)
        now[:] = 0.0
        self._compute(self.lead)
        for layer, (seconds, gap) in enumerate(self.layers):
            np.maximum(now, ready[layer], out=now)
            self._compute(seconds)
            for place, gate, lasting, swapping in starts[layer]:
                begun = now if gate is None else now + gate
                np.maximum(fetched, begun, out=fetched)
                fetched += lasting
                if swapped is not None and swapping is not None:
                    np.maximum(swapped, begun, out=swapped)
                    swapped += swapping
                    np.maximum(fetched, swapped, out=copied)
                places[place] = copied
            if gap:
                self._compute(gap)
        for until in (fetched,) if swapped is None else (fetched, swapped, copied):
            np.maximum(np.subtract(until, now, out=until), 0.0, out=until)
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
