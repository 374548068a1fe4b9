"""Seconds of the shapes of one component under given pins: a lower bound at once, exactly when it is asked for.

The bound is `ring.least_seconds` in columns; the exact seconds are `lanes.lane_seconds` of the runs that differ, each
of which is simulated once, whatever the lifetimes, the pins of a resident set, and the number of ranks.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from stowplan_agent.planning.course import PassColumns
from stowplan_agent.planning.lean import leanest
from stowplan_agent.planning.links import RankLink
from stowplan_agent.planning.simulated import simulated
from stowplan_agent.planning.table import Floats, Ints, ShapeTable, table_of
from stowplan_agent.planning.visits import Visits
from stowplan_api.record import Run


class ShapePricer:
    """Prices the shapes of a table. ``pins`` are pinned layers, row by group; ``link`` is the class of a link."""

    def __init__(self, visits: Visits) -> None:
        self.visits = visits
        self.component = visits.component
        self._known: dict[tuple[int, int], tuple[Ints, Floats]] = {}
        self._courses: dict[int, PassColumns] = {}
        self.simulated = 0
        """Runs that were simulated."""

    @cached_property
    def table(self) -> ShapeTable:
        """All shapes; made when a shape is first needed."""
        return table_of(self.component, self.visits.links[0].ranks)

    @cached_property
    def leanest(self) -> Ints:
        """Shapes that need least of every kind of memory."""
        return leanest(self.table)

    def locked(self, shapes: Ints, pins: Ints) -> Floats:
        """Locked bytes a rank."""
        total = np.zeros(len(shapes))
        for index, table in enumerate(self.table.groups):
            total += table.copied[self.table.way(shapes, index), pins[:, index]]
        return total

    def bound(self, shapes: Ints, pins: Ints, link: int) -> Floats:
        """Lower bounds of seconds, row by stay."""
        stays = [
            (self._load(shapes, pins, self.visits.links[link]) if stay.loads else 0.0)
            + self._least(shapes, pins, stay.run, self.visits.links[link])
            for _, stay in self.visits.stays
        ]
        return np.stack(stays, axis=1) if stays else np.zeros((len(shapes), 0))

    def whole(self, link: int) -> Floats:
        """`bound` of all shapes with everything pinned that has a host copy."""
        speed, stays = self.visits.links[link], []
        for _, stay in self.visits.stays:
            course, ways = self.course(stay.run), np.arange(len(self.table.ways))
            first = speed.latency_seconds + course.first / speed.pinned_stream_rate
            # Shapes that stream alike run alike, whatever their lifetimes.
            least = course.least(ways, course.copies(ways, course.streamed, speed), first, speed)
            seconds = (np.maximum(least, course.swapping(ways, speed)) if speed.ranks > 1 else least)[self.table.kind]
            if stay.loads:
                loose = self.table.loose(np.arange(len(self.table)))
                seconds += speed.load_seconds(self.table.load - loose, loose)
            stays.append(seconds)
        return np.stack(stays, axis=1)

    def exact(self, shapes: Ints, pins: Ints, link: int) -> Floats:
        """Seconds, row by stay."""
        stays = [
            (self._load(shapes, pins, self.visits.links[link]) if stay.loads else 0.0)
            + self._runs(shapes, pins, index, link)
            for index, (_, stay) in enumerate(self.visits.stays)
        ]
        return np.stack(stays, axis=1) if stays else np.zeros((len(shapes), 0))

    def busy(self, shapes: Ints, pins: Ints, link: int) -> Floats:
        """Seconds in which the component's own copies keep the link busy, row by stay: loads and streamed layers."""
        speed, ways = self.visits.links[link], self.table.kind[shapes]
        load = self._load(shapes, pins, speed)
        stays = []
        for _, stay in self.visits.stays:
            course = self.course(stay.run)
            copies = stay.run.passes * course.copies(ways, self._pinned(shapes, pins, stay.run), speed)
            stays.append(copies + load if stay.loads else copies)
        return np.stack(stays, axis=1) if stays else np.zeros((len(shapes), 0))

    def relaxed(self, shapes: Ints, streamed: Floats, loaded: Floats, link: int) -> Floats:
        """Lower bounds of seconds, averaged over workloads, if ``streamed`` bytes of what is streamed are pinned, in
        any order, and ``loaded`` bytes of what is brought in."""
        speed = self.visits.links[link]
        total, ways = np.zeros(len(shapes)), self.table.kind[shapes]
        for share, stay in self.visits.stays:
            course = self.course(stay.run)
            pinned = np.minimum(streamed, course.streamed[ways])
            copies = course.copies(ways, pinned, speed)
            first = speed.latency_seconds + course.first[ways] / speed.pinned_stream_rate
            least = course.least(ways, copies, first, speed)
            if speed.ranks > 1:
                # Only where nothing is streamed: elsewhere the line would turn once more as more bytes are pinned.
                least = np.where(course.streaming[ways], least, np.maximum(least, course.swapping(ways, speed)))
            total += share * least
            if stay.loads:
                total += share * speed.load_seconds(loaded, self.table.load[shapes] - loaded)
        return total

    def course(self, run: Run) -> PassColumns:
        """What the passes of one stay are made of, in columns."""
        if id(run) not in self._courses:
            self._courses[id(run)] = PassColumns(self.table, run)
        return self._courses[id(run)]

    def _pinned(self, shapes: Ints, pins: Ints, run: Run) -> Floats:
        """Pinned bytes of what is streamed in a pass."""
        pinned = np.zeros(len(shapes))
        for index, table in enumerate(self.table.groups):
            if table.name in run.layer_seconds:
                way = self.table.way(shapes, index)
                pinned += table.copied[way, np.minimum(pins[:, index], table.count[way])]
        return pinned

    def _load(self, shapes: Ints, pins: Ints, link: RankLink) -> Floats:
        pinned = np.zeros(len(shapes))
        for index, table in enumerate(self.table.groups):
            way, count = self.table.way(shapes, index), pins[:, index]
            pinned += table.copied[way, count] - table.copied[way, np.minimum(count, table.count[way])]
        return link.load_seconds(pinned, self.table.load[shapes] - pinned)

    def _least(self, shapes: Ints, pins: Ints, run: Run, link: RankLink) -> Floats:
        course, ways = self.course(run), self.table.kind[shapes]
        pinned = np.zeros(len(shapes))
        fast = np.zeros(len(shapes), dtype=np.bool_)
        for index, table in enumerate(self.table.groups):
            if table.name in run.layer_seconds:
                way = self.table.way(shapes, index)
                count = np.minimum(pins[:, index], table.count[way])
                pinned += table.copied[way, count]
                fast |= (count > 0) & (course.leader[ways] == index)
        rate = np.where(fast, link.pinned_stream_rate, link.pageable_stream_rate)
        first = link.latency_seconds + course.first[ways] / rate
        least = course.least(ways, course.copies(ways, pinned, link), first, link)
        return np.maximum(least, course.swapping(ways, link)) if link.ranks > 1 else least

    def _runs(self, shapes: Ints, pins: Ints, stay: int, link: int) -> Floats:
        """Seconds of all passes of one stay: looked up, and simulated where they are new."""
        keys = self._keys(shapes, pins)
        known, values = self._known.get((stay, link), (np.empty(0, dtype=np.int64), np.empty(0)))
        place = np.searchsorted(known, keys)
        new = np.flatnonzero(np.append(known, -1)[place] != keys)
        if len(new):
            row = new[np.unique(keys[new], return_index=True)[1]]
            known = np.concatenate([known, keys[row]])
            run, speed = self.visits.stays[stay][1].run, self.visits.links[link]
            values = np.concatenate([values, simulated(self.table, shapes[row], pins[row], run, speed)])
            self.simulated += len(row)
            order = np.argsort(known)
            known, values = known[order], values[order]
            self._known[stay, link] = (known, values)
            place = np.searchsorted(known, keys)
        return values[place]

    def _keys(self, shapes: Ints, pins: Ints) -> Ints:
        """A whole number for each way to stream and to pin what is streamed."""
        key = np.zeros(len(shapes), dtype=np.int64)
        for index, table in enumerate(self.table.groups):
            way = self.table.way(shapes, index)
            key = key * len(table.streams) + way
            key = key * (table.layers + 1) + np.minimum(pins[:, index], table.count[way])
        return key
