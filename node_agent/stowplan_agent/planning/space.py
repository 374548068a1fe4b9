"""The option space of one component: every entry that section 2 allows it, as rows that are priced when it matters.

Seconds of a component do not depend on the other components as long as nothing is prefetched. So a space serves every
size of card: what is priced for one is known for all. It is all of section 2 except prefetching (`branch` adds it), and
except what ``left_out`` names because a component is too large to list: those sentences go into every proof.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.openpins import all_pins, open_points
from stowplan_agent.planning.options import layerwise_entry
from stowplan_agent.planning.pricing import ShapePricer
from stowplan_agent.planning.rows import (
    CURRENT,
    LOCKED,
    OPEN_PINS,
    PREFETCHES,
    RESIDENT,
    Rows,
    distinct,
    joined,
)
from stowplan_agent.planning.table import Floats, Ints
from stowplan_agent.planning.visits import Visits
from stowplan_agent.planning.whole import WholeEntries
from stowplan_api.placement import ComponentPlacement


class Space(WholeEntries):
    """The rows of one component."""

    def __init__(self, visits: Visits, frame: Frame) -> None:
        super().__init__(visits, frame)
        self.pricer = ShapePricer(visits)
        self._coarse: dict[bool, Rows] = {}

    def coarse(self, *, scarce: bool) -> Rows:
        """All shapes, each once: pinned whole, or (where pins are scarce) with its pins open."""
        if scarce not in self._coarse:
            self._coarse[scarce] = self._all(scarce=scarce) if self._layered else self.whole()
        return self._coarse[scarce]

    def parts(self, *, scarce: bool) -> list[Rows]:
        """The same in parts, for a space that has more rows: so many are not copied twice."""
        if scarce in self._coarse:
            return [self._coarse[scarce]]
        if not self._layered:
            return [self.whole()]
        shapes = np.arange(len(self.pricer.table))
        self.left_out |= set(self.pricer.table.left_out)
        most = np.repeat(self.pricer.table.most[:, :, None], len(self.visits.links), axis=2)
        if not self.visits.stays:
            return [self.whole(), self._rows(shapes, np.zeros_like(most))]
        return [self.whole(), self._half_open(shapes, most) if scarce else self._rows(shapes, most)]

    def keep(self, rows: Rows, *, scarce: bool) -> None:
        """Take ``rows``, which are those of `parts`, for `coarse`."""
        self._coarse[scarce] = rows

    def _all(self, *, scarce: bool) -> Rows:
        return joined(self.parts(scarce=scarce))

    @cached_property
    def smallest(self) -> Rows:
        """Rows that lock nothing, among them all that need least of everything else."""
        rows = self.whole()
        unpinned = rows.take(rows.shape != CURRENT)
        if not self._layered:
            return unpinned
        table = self.pricer.table
        few = np.ones(len(table), dtype=np.bool_)
        for index, each in enumerate(table.groups):
            few &= each.slots[table.way[:, index]] == each.slots.min()
        shapes = np.flatnonzero(few)
        # What is not always on the device has a host copy: of those that always hold as much, one holds least.
        shapes = shapes[np.lexsort((table.own[shapes], table.always[shapes]))]
        shapes = np.sort(shapes[np.diff(table.always[shapes], prepend=-1.0) > 0])
        none = np.zeros((len(shapes), len(table.groups), len(self.visits.links)), dtype=np.int64)
        return joined([unpinned, self._rows(shapes, none)])

    def opened(self, rows: Rows) -> Rows:
        """Open rows replaced by one row for every choice of pins."""
        shapes = distinct(rows.shape[rows.open])
        return joined([rows.take(~rows.open), self.pinned(shapes)]) if len(shapes) else rows

    def pinned(self, shapes: Ints) -> Rows:
        """A row for every choice of pins of the given shapes."""
        chosen, pins, reasons = all_pins(self.pricer, self.visits, shapes)
        self.left_out |= reasons
        return self._rows(chosen, pins)

    def priced(self, rows: Rows) -> Rows:
        """The same rows with exact seconds."""
        todo = np.flatnonzero(~rows.priced)
        if not len(todo):
            return rows
        rows.times[todo] = self._times(rows.shape[todo], rows.pins[todo], exact=True)
        rows.priced[todo] = True
        return rows

    def sharpened(self, rows: Rows) -> Rows:
        """The rows with better bounds of their seconds, if there are any."""
        return rows

    def entry(self, rows: Rows, index: int, extra: float = 0.0) -> ComponentPlacement:
        """The entry of one row; ``extra`` are the bytes of a node that an elastic one locks."""
        shape, link_of = int(rows.shape[index]), self.visits.link_of
        if shape == CURRENT and self.current is not None:
            return self.current
        if shape == RESIDENT:
            return ComponentPlacement(name=self.component.name, mode="Resident")
        if shape < 0:
            given = self.curve.pins(extra) if shape in OPEN_PINS else tuple(int(one) for one in rows.pins[index, 0])
            return self.offload(tuple(given[link] for link in link_of), prefetch=shape in PREFETCHES)
        pins = tuple(tuple(int(group[link]) for link in link_of) for group in rows.pins[index])
        table = self.pricer.table
        return layerwise_entry(self.component, table.streams(shape), table.lives(shape), pins)

    def _half_open(self, shapes: Ints, most: Ints) -> Rows:
        """Rows that no pins of their shapes improve on."""
        parts = []
        for point in open_points(self.pricer, self.visits, shapes):
            rows = self._rows(shapes, most)
            rows.bytes[:, LOCKED:] = point.locked @ self.frame.ranks_of.T
            rows.times[:] = point.seconds[:, None]
            rows.open[:] = True
            parts.append(rows)
        return joined(parts)

    @property
    def _layered(self) -> bool:
        return bool(self.component.groups) and self.fixed in (None, "Layerwise")

    def _rows(self, shapes: Ints, pins: Ints) -> Rows:
        """Rows of shapes with lower bounds of their seconds."""
        count, nodes = len(shapes), len(self.frame.pinnable)
        held = np.zeros((count, LOCKED + nodes))
        if count:
            table = self.pricer.table
            held[:, 0], held[:, 1], held[:, 2] = table.always[shapes], table.own[shapes], table.host[shapes]
            for link in range(len(self.visits.links)):
                locked = self.pricer.locked(shapes, pins[:, :, link])
                held[:, LOCKED:] += locked[:, None] * self.frame.ranks_of[:, link]
        self.listed += count
        times = self._times(shapes, pins, exact=False) if count else np.empty((0, len(self.prices)))
        idle = not self.visits.stays
        return Rows(held, times, shapes, pins, np.full(count, idle), np.zeros(count, dtype=np.bool_))

    def _times(self, shapes: Ints, pins: Ints, *, exact: bool) -> Floats:
        """Row by price: averaged over workloads; the slowest link of each stay counts."""
        average = self._slowest(shapes, pins, exact=exact) @ np.array(self.visits.shares)
        return np.repeat(average[:, None], len(self.prices), axis=1)

    def _slowest(self, shapes: Ints, pins: Ints, *, exact: bool) -> Floats:
        """Row by stay."""
        price = self.pricer.exact if exact else self.pricer.bound
        slowest = price(shapes, pins[:, :, 0], 0)
        for link in range(1, len(self.visits.links)):
            slowest = np.maximum(slowest, price(shapes, pins[:, :, link], link))
        return slowest
