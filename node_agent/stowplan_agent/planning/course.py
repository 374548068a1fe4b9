"""What a pass is made of, for all shapes of a component at once, and the least seconds that its passes can take.

`ring.least_seconds` in columns: the bound that most shapes are ruled out by without being simulated.
"""

from __future__ import annotations

import numpy as np

from stowplan_agent.planning.table import Bools, Floats, Ints, ShapeTable
from stowplan_api.record import Link, Run


class PassColumns:
    """Columns of one stay with one entry a shape."""

    def __init__(self, table: ShapeTable, run: Run) -> None:
        shapes = len(table)
        self.passes = run.passes
        self.compute = run.loose_seconds + sum(map(sum, run.layer_seconds.values()))
        """Seconds of a pass with everything on the device."""
        self.streaming: Bools = np.zeros(shapes, dtype=np.bool_)
        self.count: Ints = np.zeros(shapes, dtype=np.int64)
        """Streamed layers of a pass."""
        self.streamed: Floats = np.zeros(shapes)
        """Their bytes."""
        self.first: Floats = np.zeros(shapes)
        """Bytes of the first of them."""
        self.leader: Ints = np.full(shapes, -1, dtype=np.int64)
        """The group that it belongs to."""
        self.lead: Floats = np.full(shapes, run.loose_seconds)
        """Seconds of a pass before it."""
        self.tail: Floats = np.zeros(shapes)
        """Seconds of a pass from the start of the last streamed layer."""
        for index, group in enumerate(table.groups):
            seconds = run.layer_seconds.get(group.name)
            if seconds is not None:
                ends = np.concatenate([[0.0], np.cumsum(seconds)])
                self._add(table.way[:, index], index, ends, group.count, group.streamed_bytes, group.copied[:, 1])
                way, whole = table.way[:, index], float(ends[-1])
                here = group.count[way] > 0
                self.lead += np.where(self.streaming, 0.0, np.where(here, ends[group.first[way]], whole))
                self.tail = np.where(
                    here, whole - ends[group.last[way]], self.tail + np.where(self.streaming, whole, 0.0)
                )
                self.streaming |= here

    def _add(self, way: Ints, index: int, ends: Floats, count: Ints, streamed: Floats, first: Floats) -> None:
        starts = ~self.streaming & (count[way] > 0)
        self.count += count[way]
        self.streamed += streamed[way]
        self.first = np.where(starts, first[way], self.first)
        self.leader = np.where(starts, index, self.leader)

    def copies(self, shapes: Ints, pinned: Floats, link: Link) -> Floats:
        """Seconds in which the copies of a pass keep the link busy, with ``pinned`` bytes of them pinned."""
        rest = self.streamed[shapes] - pinned
        busy: Floats = self.count[shapes] * link.latency_seconds + (
            pinned / link.pinned_bytes_per_second + rest / link.pageable_bytes_per_second
        )
        return busy

    def least(self, shapes: Ints, copies: Floats, first: Floats, link: Link) -> Floats:
        """Lower bounds of the seconds of all passes, from those of a pass's copies and of its first one."""
        passes, contention = self.passes, link.contention
        idle = np.maximum(first - self.lead[shapes] * contention, 0.0) / contention
        slowed = passes * self.compute + passes * copies * (1 - 1 / contention) + idle
        bound: Floats = np.where(
            self.streaming[shapes], np.maximum(slowed, passes * copies + self.tail[shapes]), passes * self.compute
        )
        return bound

    def turn(self, shapes: Ints, link: Link) -> Floats:
        """Pinned bytes of what is streamed at which compute, and no longer the link, decides the seconds."""
        saved = 1 / link.pageable_bytes_per_second - 1 / link.pinned_bytes_per_second
        if saved <= 0:
            return np.zeros(len(shapes))
        none = np.zeros(len(shapes))
        first = link.latency_seconds + self.first[shapes] / link.pinned_bytes_per_second
        idle = np.maximum(first - self.lead[shapes] * link.contention, 0.0) / link.contention
        hidden = (self.passes * self.compute + idle - self.tail[shapes]) * link.contention / self.passes
        return np.clip((self.copies(shapes, none, link) - hidden) / saved, 0.0, self.streamed[shapes])
