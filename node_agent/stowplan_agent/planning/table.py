"""All ways to stream a component, as columns of numbers: bytes exactly, seconds by a bound, without a single entry.

A shape is a Layerwise entry without its pins: for each group how it is streamed, and how long the loose weights and
each resident set stay. The columns of all shapes are worked out together, so that most of them can be ruled out by
their numbers alone (`pricing` prices what is left).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
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


TABLES: Final = 16
"""Tables that are kept for the next plan of the same model."""


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
        self.ways = ways
        """Way by group: which way of the group's table, before lifetimes."""
        self.count: Ints = np.stack([table.count[ways[:, g]] for g, table in enumerate(self.groups)], axis=1)
        """Way by group: streamed layers."""
        loose = [True, False] if component.loose_bytes else [True]
        stay = product([True, False], repeat=len(self.groups))
        self.lifetimes = list(product(loose, stay))
        """Whether the loose weights are ``Forward``, and whether each group is."""
        kinds = [np.flatnonzero(self._distinct(*each)) for each in self.lifetimes]
        self.kind: Ints = np.concatenate(kinds)
        """Shape: which of ``ways``."""
        self.life: Ints = np.repeat(np.arange(len(kinds)), list(map(len, kinds)))
        """Shape: which of ``lifetimes``."""
        self._bytes(kinds)

    def __len__(self) -> int:
        return len(self.kind)

    def way(self, shapes: Ints, group: int) -> Ints:
        """Which way of one group's table, of each of ``shapes``."""
        way: Ints = self.ways[self.kind[shapes], group]
        return way

    def loose(self, shapes: Ints) -> Floats:
        """Loose bytes that are brought in where the component starts."""
        each = np.array([float(self.component.loose_bytes) * loose for loose, _ in self.lifetimes])
        return each[self.life[shapes]]

    def streams(self, shape: int) -> tuple[Stream, ...]:
        """How each group is streamed in one shape."""
        return tuple(table.streams[way] for table, way in zip(self.groups, self.ways[self.kind[shape]], strict=True))

    def lives(self, shape: int) -> Lives:
        """How long what is resident stays in one shape."""
        loose, stay = self.lifetimes[self.life[shape]]
        return Lives(LIFETIMES[not loose], tuple(LIFETIMES[not forward] for forward in stay))

    @cached_property
    def leanest(self) -> Ints:
        """Of the shapes that hold as much for good the one that needs least besides."""
        few = np.ones(len(self.ways), dtype=np.bool_)
        for index, table in enumerate(self.groups):
            few &= table.slots[self.ways[:, index]] == table.slots.min()
        shapes = np.flatnonzero(few[self.kind])
        # What is not always on the device has a host copy: of those that always hold as much, one holds least.
        shapes = shapes[np.lexsort((self.own[shapes], self.always[shapes]))]
        return np.sort(shapes[np.diff(self.always[shapes], prepend=-1.0) > 0])

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

    def _distinct(self, loose: bool, stay: Sequence[bool]) -> Bools:
        """Which ways are spelled with these lifetimes: a set of no layers has none, and what is all resident for good
        is Resident."""
        spelled: Bools = np.ones(len(self.ways), dtype=np.bool_)
        streaming = np.zeros(len(self.ways), dtype=np.bool_)
        for forward, table, count in zip(stay, self.groups, self.count.T, strict=True):
            streaming |= count > 0
            if not forward:
                spelled &= count < table.layers
        return spelled if any(stay) or (loose and self.component.loose_bytes) else spelled & streaming

    def _bytes(self, kinds: Sequence[Ints]) -> None:
        pairs = [(table, self.ways[:, index]) for index, table in enumerate(self.groups)]
        resident = [table.copied[way, -1] - table.streamed_bytes[way] for table, way in pairs]
        ring = sum((table.ring[way] for table, way in pairs), np.zeros(len(self.ways)))
        streamed = sum((table.streamed_bytes[way] for table, way in pairs), np.zeros(len(self.ways)))
        loads, always, own, host = (list[Floats]() for _ in range(4))
        most = list[Ints]()
        for (loose, stay), kind in zip(self.lifetimes, kinds, strict=True):
            load = np.full(len(self.ways), float(self.component.loose_bytes * loose))
            kept = np.full(len(self.ways), float(self.component.loose_bytes * (not loose)))
            for forward, each in zip(stay, resident, strict=True):
                np.add(load if forward else kept, each, out=load if forward else kept)
            columns = (loads, load), (always, kept), (own, load + ring), (host, load + streamed)
            for column, values in columns:
                column.append(values[kind])
            copies = self.count[kind]
            for index, table in enumerate(self.groups):
                if stay[index]:
                    copies[:, index] = table.layers
            most.append(copies)
        self.load: Floats = np.concatenate(loads)
        """Bytes to bring in where the component starts."""
        self.always: Floats = np.concatenate(always)
        self.own: Floats = np.concatenate(own)
        self.host: Floats = np.concatenate(host)
        self.most: Ints = np.concatenate(most)
        """Shape by group: layers that keep a host copy."""


@lru_cache(maxsize=TABLES)
def table_of(component: Component) -> ShapeTable:
    """The same component has the same table on any card."""
    return ShapeTable(component)


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
