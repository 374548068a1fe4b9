"""The entries of a component that split it into layers, as rows: without pins, with given ones, and with open ones."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.openpins import open_points, raised
from stowplan_agent.planning.pricing import ShapePricer
from stowplan_agent.planning.rows import LOCKED, Rows, joined
from stowplan_agent.planning.table import Floats, Ints
from stowplan_agent.planning.visits import Visits
from stowplan_agent.planning.whole import WholeEntries

MOST_OPEN: Final = 1_000
"""Shapes of a component with peers up to which the pins of all of them are opened."""
CROWDED: Final = (
    "where pins are scarce, {component} has rings of two slots, layers spread evenly and in two of the three places of "
    "each group at most, and pins in eighths"
)
"""What is left out of more: less than 0.1 % of a request where both were solved (LTX-2, eight ranks)."""
MOST_RUN: Final = 5_000
"""Ways to stream a component up to which all are simulated before their pins are opened."""
ROUNDING: Final = 1e-12
"""Relative: what a run differs by that is simulated beside others."""


class ShapedEntries(WholeEntries):
    """The rows of one component, by its table of shapes."""

    def __init__(self, visits: Visits, frame: Frame) -> None:
        super().__init__(visits, frame)
        self.pricer = ShapePricer(visits)
        self._floor: Floats | None = None
        """By shape: seconds that no pins are below, where that was worked out."""

    @property
    def _layered(self) -> bool:
        return bool(self.component.groups) and self.fixed in (None, "Layerwise")

    @cached_property
    def bounds(self) -> Floats:
        """Bounds of the seconds of all shapes, pinned whole."""
        self.listed += len(self.pricer.table)
        return self._average(np.maximum.reduce([self.pricer.whole(link) for link in range(len(self.visits.links))]))

    @property
    def crowded(self) -> bool:
        """Whether there are so many shapes that pins, where they are scarce, are opened of plain ones only."""
        return self._layered and self.visits.peers and len(self.pricer.table) > MOST_OPEN

    @cached_property
    def opening(self) -> Ints:
        """The shapes whose pins are opened where pins are scarce: all, or the plain ones and the leanest."""
        table = self.pricer.table
        if not self.crowded:
            return np.arange(len(table))
        self.left_out.add(CROWDED.format(component=self.component.name))
        kept = table.plain.copy()
        kept[self.pricer.leanest] = True
        return np.flatnonzero(kept)

    def _half_open(self, shapes: Ints) -> Rows:
        """Rows that no pins of their shapes improve on."""
        parts, points = [], open_points(self.pricer, self.visits, shapes)
        if self.visits.peers and len(self.pricer.table.ways) <= MOST_RUN:
            self._floor = self._pinned_seconds(shapes)
            points = raised(points, self._floor[shapes])
        for point in points:
            rows = self._listed(shapes, self._most(shapes), point.seconds)
            rows.bytes[:, LOCKED:] = point.locked @ self.frame.ranks_of.T
            rows.open[:] = True
            parts.append(rows)
        self.listed += sum(map(len, parts))
        return joined(parts)

    def _pinned_seconds(self, shapes: Ints) -> Floats:
        """By shape: exact seconds with everything pinned, which no pins are below; minus infinity of other shapes.

        With peers two links copy, at once or one after the other, which no bound by sums of copies can tell.
        """
        floor: Floats = np.full(len(self.pricer.table), -np.inf)
        if self.visits.stays:
            seconds = self._average(self._slowest(shapes, self._most(shapes), exact=True))
            floor[shapes] = seconds * (1 - ROUNDING)
        return floor

    def _pinned_whole(self, shapes: Ints) -> Rows:
        """A row of each shape, with everything pinned that has a host copy."""
        rows, table = self._listed(shapes, self._most(shapes), self.bounds[shapes]), self.pricer.table
        rows.bytes[:, LOCKED:] = (table.host[shapes] - table.loose(shapes))[:, None] * self.frame.ranks_of.sum(axis=1)
        return rows

    def _most(self, shapes: Ints) -> Ints:
        return np.repeat(self.pricer.table.most[shapes][:, :, None], len(self.visits.links), axis=2)

    def _rows(self, shapes: Ints, pins: Ints) -> Rows:
        """Rows of shapes with lower bounds of their seconds."""
        self.listed += len(shapes)
        rows = self._listed(shapes, pins, 0.0)
        if len(shapes):
            for link in range(len(self.visits.links)):
                locked = self.pricer.locked(shapes, pins[:, :, link])
                rows.bytes[:, LOCKED:] += locked[:, None] * self.frame.ranks_of[:, link]
            rows.times[:] = self._times(shapes, pins, exact=False)
            if self._floor is not None:
                np.maximum(rows.times, self._floor[shapes][:, None], out=rows.times)
        rows.priced[:] = not self.visits.stays
        return rows

    def _listed(self, shapes: Ints, pins: Ints, seconds: Floats | float) -> Rows:
        """Rows of shapes that lock nothing yet."""
        count, table = len(shapes), self.pricer.table
        self.left_out |= set(table.left_out)
        held = np.zeros((count, LOCKED + len(self.frame.pinnable)))
        held[:, 0], held[:, 1], held[:, 2] = table.always[shapes], table.own[shapes], table.host[shapes]
        times = np.empty((count, len(self.prices)))
        times[:] = np.asarray(seconds)[..., None]
        none = np.zeros((2, count), dtype=np.bool_)
        return Rows(held, times, shapes, pins, *none)

    def _times(self, shapes: Ints, pins: Ints, *, exact: bool) -> Floats:
        """Row by price: averaged over workloads; the slowest link of each stay counts."""
        return np.repeat(self._average(self._slowest(shapes, pins, exact=exact))[:, None], len(self.prices), axis=1)

    def _average(self, stays: Floats) -> Floats:
        average: Floats = stays @ np.array(self.visits.shares)
        return average

    def _slowest(self, shapes: Ints, pins: Ints, *, exact: bool) -> Floats:
        """Row by stay."""
        price = self.pricer.exact if exact else self.pricer.bound
        slowest = price(shapes, pins[:, :, 0], 0)
        for link in range(1, len(self.visits.links)):
            slowest = np.maximum(slowest, price(shapes, pins[:, :, link], link))
        return slowest
