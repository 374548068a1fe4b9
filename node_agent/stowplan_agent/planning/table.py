"""All ways to stream a component, as columns of numbers: bytes exactly, seconds by a bound, without a single entry.

A shape is a Layerwise entry without its pins: for each group how it is streamed, and how long the loose weights and
each resident set stay. The columns of all shapes are worked out together, so that most of them can be ruled out by
their numbers alone (`pricing` prices what is left).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.options import LIFETIMES, Lives, Stream, streams_of
from stowplan_api.record import Component, Group

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_STREAMS: Final = 20_000
"""Ways to stream a component (before pins and lifetimes) up to which all of them are in the table."""


class GroupTable:
    """Every way to stream one group. Columns have one entry a way."""

    def __init__(self, group: Group) -> None:
        sizes = np.array(group.layer_bytes, dtype=np.float64)
        self.name = group.name
        self.streams = streams_of(group)
        self.layers = len(sizes)
        self.streamed: Bools = np.zeros((self.layers, len(self.streams)), dtype=np.bool_)
        for index, stream in enumerate(self.streams):
            self.streamed[list(stream.streamed), index] = True
        self.count: Ints = self.streamed.sum(axis=0)
        self.slots: Ints = np.array([stream.slots for stream in self.streams], dtype=np.int64)
        self.ring: Floats = self.slots * np.where(self.streamed, sizes[:, None], 0.0).max(axis=0)
        self.sizes = sizes
        order = np.argsort(~self.streamed, axis=0, kind="stable")
        self.copied: Floats = np.vstack([np.zeros(len(self.streams)), np.cumsum(sizes[order], axis=0)]).T
        """Way by count: bytes of the first so many layers, streamed ones first, each in running order."""
        self.streamed_bytes: Floats = self.copied[np.arange(len(self.streams)), self.count]
        self.first: Ints = np.where(self.count > 0, self.streamed.argmax(axis=0), self.layers)
        """The first streamed layer; the number of layers where none is."""
        self.last: Ints = np.where(self.count > 0, self.layers - 1 - self.streamed[::-1].argmax(axis=0), self.layers)


class ShapeTable:
    """Every shape of one component. Columns have one entry a shape."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.groups = [GroupTable(group) for group in component.groups]
        self.left_out: tuple[str, ...] = ()
        ways = self._ways()
        loose = [True, False] if component.loose_bytes else [True]
        stay = list(product([True, False], repeat=len(self.groups)))
        count = len(ways)
        self.ways = ways
        """Way by group: which way of the group's table, before lifetimes."""
        self.kind: Ints = np.tile(np.arange(count), len(loose) * len(stay))
        """Shape: which of ``ways``."""
        self.way: Ints = np.tile(ways, (len(loose) * len(stay), 1))
        """Shape by group: which way of the group's table."""
        self.loose_forward: Bools = np.repeat(np.array(loose, dtype=np.bool_), len(stay) * count)
        self.forward: Bools = np.tile(np.repeat(np.array(stay, dtype=np.bool_), count, axis=0), (len(loose), 1))
        self._keep(self._distinct())
        self._bytes()

    def __len__(self) -> int:
        return len(self.way)

    def streams(self, shape: int) -> tuple[Stream, ...]:
        """How each group is streamed in one shape."""
        return tuple(table.streams[way] for table, way in zip(self.groups, self.way[shape], strict=True))

    def lives(self, shape: int) -> Lives:
        """How long what is resident stays in one shape."""
        groups = tuple(LIFETIMES[0] if forward else LIFETIMES[1] for forward in self.forward[shape])
        return Lives(LIFETIMES[0] if self.loose_forward[shape] else LIFETIMES[1], groups)

    def _ways(self) -> Ints:
        size = 1
        for table in self.groups:
            size *= len(table.streams)
        grid = np.stack(np.meshgrid(*(np.arange(len(t.streams)) for t in self.groups), indexing="ij"), axis=-1)
        ways: Ints = grid.reshape(-1, len(self.groups))
        if size <= MOST_STREAMS:
            return ways
        self.left_out = (f"the groups of {self.component.name} share one policy and one number of slots",)
        return ways[_alike(self.groups, ways)]

    def _distinct(self) -> Bools:
        """One spelling of each: a set of no layers has no lifetime, and what is all resident for good is Resident."""
        count = np.stack([table.count[self.way[:, g]] for g, table in enumerate(self.groups)], axis=1)
        layers = np.array([table.layers for table in self.groups])
        spelled = (~(count == layers) | self.forward).all(axis=1)
        kept = ~self.loose_forward if self.component.loose_bytes else np.ones(len(count), dtype=np.bool_)
        resident = kept & (count == 0).all(axis=1) & ~self.forward.any(axis=1)
        mask: Bools = spelled & ~resident
        return mask

    def _keep(self, mask: Bools) -> None:
        self.way, self.kind = self.way[mask], self.kind[mask]
        self.loose_forward, self.forward = self.loose_forward[mask], self.forward[mask]

    def _bytes(self) -> None:
        loose = np.where(self.loose_forward, float(self.component.loose_bytes), 0.0)
        self.load: Floats = loose.copy()
        """Bytes to bring in where the component starts."""
        self.always: Floats = self.component.loose_bytes - loose
        ring, streamed = np.zeros(len(self)), np.zeros(len(self))
        for index, table in enumerate(self.groups):
            way = self.way[:, index]
            resident = table.copied[way, -1] - table.streamed_bytes[way]
            self.load += np.where(self.forward[:, index], resident, 0.0)
            self.always += np.where(self.forward[:, index], 0.0, resident)
            ring += table.ring[way]
            streamed += table.streamed_bytes[way]
        self.own: Floats = self.load + ring
        self.host: Floats = self.load + streamed
        self.most: Ints = np.stack(
            [
                np.where(self.forward[:, index], table.layers, table.count[self.way[:, index]])
                for index, table in enumerate(self.groups)
            ],
            axis=1,
        )
        """Shape by group: layers that keep a host copy."""


def _alike(groups: Sequence[GroupTable], ways: Ints) -> Bools:
    """Whether all groups that stream have as many slots, and all that stream a part the same policy."""
    mask = np.ones(len(ways), dtype=np.bool_)
    pairs = [(table, ways[:, index]) for index, table in enumerate(groups)]
    leading = [np.array([stream.policy == "Leading" for stream in table.streams]) for table in groups]
    for one, (table, way) in enumerate(pairs):
        for two, (other, far) in enumerate(pairs[:one]):
            streaming = (table.count[way] > 0) & (other.count[far] > 0)
            part = streaming & (table.count[way] < table.layers) & (other.count[far] < other.layers)
            mask &= ~streaming | (table.slots[way] == other.slots[far])
            mask &= ~part | (leading[one][way] == leading[two][far])
    return mask
