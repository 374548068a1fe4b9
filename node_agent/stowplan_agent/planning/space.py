"""The option space of one component: every entry that section 2 allows it, as rows that are priced when it matters.

Seconds of a component do not depend on the other components as long as nothing is prefetched. So a space serves every
size of card: what is priced for one is known for all. It is all of section 2 except prefetching (`branch` adds it), and
except what ``left_out`` names because a component is too large to list: those sentences go into every proof.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.openpins import all_pins, in_eighths
from stowplan_agent.planning.options import layerwise_entry
from stowplan_agent.planning.rows import (
    ALWAYS,
    CURRENT,
    OPEN_PINS,
    OWN,
    PREFETCHES,
    RESIDENT,
    Rows,
    distinct,
    joined,
)
from stowplan_agent.planning.shaped import ShapedEntries
from stowplan_agent.planning.table import Ints
from stowplan_agent.planning.visits import Visits
from stowplan_api.placement import ComponentPlacement

LONG: Final = 10_000
"""Rows of a component from which it pays to make only those that are fast enough."""


class Space(ShapedEntries):
    """The rows of one component."""

    def __init__(self, visits: Visits, frame: Frame) -> None:
        super().__init__(visits, frame)
        self._coarse: dict[bool, Rows] = {}
        self._made: tuple[tuple[float, float], Rows | None] = ((-np.inf, -np.inf), None)
        """The last rows of `quick`, and what they were asked for."""

    def coarse(self, *, scarce: bool) -> Rows:
        """All shapes, each once: pinned whole, or (where pins are scarce) with its pins open."""
        if scarce not in self._coarse:
            self._coarse[scarce] = self._all(scarce=scarce) if self._layered else self.whole()
        return self._coarse[scarce]

    def quick(self, most: float, room: float = np.inf) -> Rows:
        """The rows of `coarse` with pins enough, of many only those that take at most ``most`` seconds by their bounds
        and hold at most ``room`` bytes in their own intervals: so most of them are never made."""
        if not self.long or False in self._coarse:
            return self.coarse(scarce=False)
        given, rows = self._made
        if rows is not None and most <= given[0] and room <= given[1]:
            few = rows.take((rows.times[:, -1] <= most) & (rows.bytes[:, ALWAYS] + rows.bytes[:, OWN] <= room))
            return rows if len(few) == len(rows) else few
        rows = self._quick(most, room)
        self._made = (most, room), rows
        return rows

    def _quick(self, most: float, room: float) -> Rows:
        table = self.pricer.table
        quick = self.bounds <= most
        if room < np.inf:
            quick &= table.always + table.own <= room
        return joined([self.whole(), self._pinned_whole(np.flatnonzero(quick))])

    @cached_property
    def long(self) -> bool:
        """Whether the component has so many rows that it pays not to make all of them."""
        return self._layered and bool(self.visits.stays) and len(self.pricer.table) > LONG

    @cached_property
    def least(self) -> tuple[float, float]:
        """Seconds that no row is below, and bytes that each holds for good."""
        if not self.long:
            rows = self.coarse(scarce=False)
            return float(rows.times[:, -1].min()), float(rows.bytes[:, ALWAYS].min())
        rows, always = self.whole(), float(self.pricer.table.always.min())
        return (
            min(float(rows.times[:, -1].min(initial=np.inf)), float(self.bounds.min())),
            min(float(rows.bytes[:, ALWAYS].min(initial=np.inf)), always),
        )

    @property
    def sketch(self) -> Rows:
        """A few rows that stand for many: with what is leanest pinned whole."""
        if not self.long:
            return self.tried(self.coarse(scarce=False))
        return joined([self.whole(), self._pinned_whole(self.pricer.leanest)])

    def tried(self, rows: Rows) -> Rows:
        """Without the rows whose pins are not opened where pins are scarce."""
        if not (self.crowded and self.frame.pins_scarce):
            return rows
        return rows.take((rows.shape < 0) | np.isin(rows.shape, self.opening))

    def parts(self, *, scarce: bool) -> list[Rows]:
        """The same in parts, for a space that has more rows: so many are not copied twice."""
        if scarce in self._coarse:
            return [self._coarse[scarce]]
        if not self._layered:
            return [self.whole()]
        shapes = self.opening if scarce else np.arange(len(self.pricer.table))
        if not self.visits.stays:
            none = np.zeros((len(shapes), len(self.pricer.table.groups), len(self.visits.links)), dtype=np.int64)
            return [self.whole(), self._rows(shapes, none)]
        return [self.whole(), self._half_open(shapes) if scarce else self._pinned_whole(shapes)]

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
        shapes = self.pricer.leanest
        none = np.zeros((len(shapes), len(table.groups), len(self.visits.links)), dtype=np.int64)
        return joined([unpinned, self._rows(shapes, none)])

    def opened(self, rows: Rows) -> Rows:
        """Open rows replaced by one row for every choice of pins."""
        shapes = distinct(rows.shape[rows.open])
        return joined([rows.take(~rows.open), self.pinned(shapes)]) if len(shapes) else rows

    def pinned(self, shapes: Ints, locked: float = np.inf) -> Rows:
        """A row for every choice of pins of the given shapes; some that lock more than ``locked`` bytes on all ranks
        may be missing."""
        chosen, pins, reasons = all_pins(self.pricer, self.visits, shapes, locked / self.frame.ranks_of.sum())
        self.left_out |= reasons
        if self.crowded and self.frame.pins_scarce:
            some = in_eighths(self.pricer.table.most[chosen], pins[:, :, 0])
            chosen, pins = chosen[some], pins[some]
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
