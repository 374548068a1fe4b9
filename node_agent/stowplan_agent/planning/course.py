"""What a pass is made of, for all ways to stream a component at once, and the least seconds that its passes can take.

`ring.least_seconds` in columns: the bound that most shapes are ruled out by without being simulated.
"""

from __future__ import annotations

import numpy as np

from stowplan_agent.planning.links import RankLink
from stowplan_agent.planning.table import Bools, Floats, Ints, ShapeTable
from stowplan_api.record import Run


class PassColumns:
    """Columns of one stay with one entry a way to stream (`ShapeTable.ways`): lifetimes change nothing in a pass."""

    def __init__(self, table: ShapeTable, run: Run) -> None:
        ways = len(table.ways)
        self.passes = run.passes
        self.compute = run.loose_seconds + sum(map(sum, run.layer_seconds.values()))
        """Seconds of a pass with everything on the device."""
        self.streaming: Bools = np.zeros(ways, dtype=np.bool_)
        self.count: Ints = np.zeros(ways, dtype=np.int64)
        """Streamed layers of a pass."""
        self.streamed: Floats = np.zeros(ways)
        """Their bytes."""
        self.first: Floats = np.zeros(ways)
        """Bytes of the first of them."""
        self.leader: Ints = np.full(ways, -1, dtype=np.int64)
        """The group that it belongs to."""
        self.lead: Floats = np.full(ways, run.loose_seconds)
        """Seconds of a pass before it."""
        self.tail: Floats = np.zeros(ways)
        """Seconds of a pass from the start of the last streamed layer."""
        self.swapped: Floats = np.zeros(ways if table.ranks > 1 else 1)
        """Bytes of a pass that are streamed or sharded; all 0 without peers."""
        self.end: Floats = np.zeros_like(self.swapped)
        """Seconds of a pass from the start of the last layer that is."""
        for index, group in enumerate(table.groups):
            seconds = run.layer_seconds.get(group.name)
            if seconds is not None:
                ends = np.concatenate([[0.0], np.cumsum(seconds)])
                self._add(table.ways[:, index], index, ends, group.count, group.streamed_bytes, group.copied[:, 1])
                way, whole = table.ways[:, index], float(ends[-1])
                here = group.count[way] > 0
                self.lead += np.where(self.streaming, 0.0, np.where(here, ends[group.first[way]], whole))
                self.tail = np.where(
                    here, whole - ends[group.last[way]], self.tail + np.where(self.streaming, whole, 0.0)
                )
                self.streaming |= here
                if table.ranks > 1:
                    passing = group.passing[way] > 0
                    rest = np.where(self.swapped > 0, whole, 0.0)
                    self.end = np.where(passing, whole - ends[group.final[way]], self.end + rest)
                    self.swapped += group.streamed_bytes[way] + group.sharded_bytes[way]

    def _add(self, way: Ints, index: int, ends: Floats, count: Ints, streamed: Floats, first: Floats) -> None:
        starts = ~self.streaming & (count[way] > 0)
        self.count += count[way]
        self.streamed += streamed[way]
        self.first = np.where(starts, first[way], self.first)
        self.leader = np.where(starts, index, self.leader)

    def copies(self, ways: Ints, pinned: Floats, link: RankLink) -> Floats:
        """Seconds in which the copies of a pass keep the link busy, with ``pinned`` bytes of them pinned."""
        rest = self.streamed[ways] - pinned
        busy: Floats = self.count[ways] * link.latency_seconds + (
            pinned / link.pinned_stream_rate + rest / link.pageable_stream_rate
        )
        return busy

    def least(self, ways: Ints, copies: Floats, first: Floats, link: RankLink) -> Floats:
        """Lower bounds of the seconds of all passes, from those of a pass's copies and of its first one."""
        passes, contention = self.passes, link.contention
        idle = np.maximum(first - self.lead[ways] * contention, 0.0) / contention
        slowed = passes * self.compute + passes * copies * (1 - 1 / contention) + idle
        bound: Floats = np.where(
            self.streaming[ways], np.maximum(slowed, passes * copies + self.tail[ways]), passes * self.compute
        )
        return bound

    def swapping(self, ways: Ints, link: RankLink) -> Floats:
        """Another lower bound, by what the peer link has to carry; 0 without peers."""
        if link.ranks == 1:
            return np.zeros(len(ways))
        swaps = self.passes * self.swapped[ways] * link.seconds_a_swapped_byte
        slowed = self.passes * self.compute + swaps * (1 - 1 / link.contention)
        bound: Floats = np.where(swaps > 0, np.maximum(slowed, swaps + self.end[ways]), 0.0)
        return bound

    def turn(self, ways: Ints, link: RankLink) -> Floats:
        """Pinned bytes of what is streamed at which compute, and no longer the link, decides the seconds."""
        saved = 1 / link.pageable_stream_rate - 1 / link.pinned_stream_rate
        if saved <= 0:
            return np.zeros(len(ways))
        none = np.zeros(len(ways))
        first = link.latency_seconds + self.first[ways] / link.pinned_stream_rate
        idle = np.maximum(first - self.lead[ways] * link.contention, 0.0) / link.contention
        hidden = (self.passes * self.compute + idle - self.tail[ways]) * link.contention / self.passes
        return np.clip((self.copies(ways, none, link) - hidden) / saved, 0.0, self.streamed[ways])
