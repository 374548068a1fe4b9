"""All ways to stream a component, as columns of numbers: bytes exactly, seconds by a bound, without a single entry.

A shape is a Layerwise entry without its pins: for each group how it is streamed, and how long the loose weights and
each resident set stay. The columns of all shapes are worked out together, so that most of them can be ruled out by
their numbers alone (`pricing` prices what is left).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Final

import numpy as np

from stowplan_agent.planning.group_table import Bools as Bools
from stowplan_agent.planning.group_table import Floats as Floats
from stowplan_agent.planning.group_table import GroupTable
from stowplan_agent.planning.group_table import Ints as Ints
from stowplan_agent.planning.options import LIFETIMES, Lives, Stream
from stowplan_api.record import Component

MOST_STREAMS: Final = 20_000
"""Ways to stream a component (before pins and lifetimes) up to which all of them are in the table."""


TWO_PLACES: Final = "layers of each group of {component} are in two of the three places at most"
"""What is left out where resident, sharded and streamed layers of one group together are too many ways."""
TABLES: Final = 16
"""Tables that are kept for the next plan of the same model."""


class ShapeTable:
    """Every shape of one component on so many ``ranks`` that share what they have; 1 where they do not."""

    def __init__(self, component: Component, ranks: int = 1) -> None:
        self.component, self.ranks = component, ranks
        self.groups = [GroupTable(group, ranks) for group in component.groups]
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

    @cached_property
    def plain(self) -> Bools:
        """Whether all groups of a shape are streamed in a plain way (`GroupTable.plain`)."""
        plain = np.ones(len(self.ways), dtype=np.bool_)
        for index, table in enumerate(self.groups):
            plain &= table.plain[self.ways[:, index]]
        return plain[self.kind]

    def streams(self, shape: int) -> tuple[Stream, ...]:
        """How each group is streamed in one shape."""
        return tuple(table.streams[way] for table, way in zip(self.groups, self.ways[self.kind[shape]], strict=True))

    def lives(self, shape: int) -> Lives:
        """How long what is resident stays in one shape."""
        loose, stay = self.lifetimes[self.life[shape]]
        return Lives(LIFETIMES[not loose], tuple(LIFETIMES[not forward] for forward in stay))

    def _ways(self) -> Ints:
        kept = [np.arange(len(table.streams)) for table in self.groups]
        if self.ranks > 1 and prod(map(len, kept)) > MOST_STREAMS:
            self.left_out += (TWO_PLACES.format(component=self.component.name),)
            kept = [np.flatnonzero(~table.in_three) for table in self.groups]
        ways: Ints = np.stack(np.meshgrid(*kept, indexing="ij"), axis=-1).reshape(-1, len(self.groups))
        if len(ways) <= MOST_STREAMS:
            return ways
        self.left_out += (f"the groups of {self.component.name} share one policy and one number of slots",)
        return ways[_alike(self.groups, ways)]

    def _distinct(self, loose: bool, stay: Sequence[bool]) -> Bools:
        """Which ways are spelled with these lifetimes: a set of no layers has none, what is sharded is so for good, and
        what is all resident for good is Resident."""
        spelled: Bools = np.ones(len(self.ways), dtype=np.bool_)
        streaming = np.zeros(len(self.ways), dtype=np.bool_)
        for index, (forward, table, count) in enumerate(zip(stay, self.groups, self.count.T, strict=True)):
            passing = table.passing[self.ways[:, index]]
            streaming |= passing > 0
            if forward:
                spelled &= passing == count
            else:
                spelled &= count < table.layers
        return spelled if any(stay) or (loose and self.component.loose_bytes) else spelled & streaming

    def _bytes(self, kinds: Sequence[Ints]) -> None:
        pairs = [(table, self.ways[:, index]) for index, table in enumerate(self.groups)]
        resident = [table.resident_bytes[way] for table, way in pairs]
        shards = sum((table.shards[way] for table, way in pairs), np.zeros(len(self.ways)))
        ring = sum((table.ring[way] for table, way in pairs), np.zeros(len(self.ways)))
        streamed = sum((table.streamed_bytes[way] for table, way in pairs), np.zeros(len(self.ways)))
        loads, always, own, host = (list[Floats]() for _ in range(4))
        most = list[Ints]()
        for (loose, stay), kind in zip(self.lifetimes, kinds, strict=True):
            load = np.full(len(self.ways), float(self.component.loose_bytes * loose))
            kept = shards + self.component.loose_bytes * (not loose)
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
def table_of(component: Component, ranks: int) -> ShapeTable:
    """The same component has the same table on any card, and on as many ``ranks`` that share."""
    return ShapeTable(component, ranks)


def _alike(groups: Sequence[GroupTable], ways: Ints) -> Bools:
    """Whether all groups that have a ring have as many slots, and all that keep a part the same policy."""
    mask = np.ones(len(ways), dtype=np.bool_)
    pairs = [(table, ways[:, index]) for index, table in enumerate(groups)]
    leading = [np.array([stream.policy == "Leading" for stream in table.streams]) for table in groups]
    for one, (table, way) in enumerate(pairs):
        for two, (other, far) in enumerate(pairs[:one]):
            streaming = (table.passing[way] > 0) & (other.passing[far] > 0)
            part = streaming & table.in_two[way] & other.in_two[far]
            mask &= ~streaming | (table.slots[way] == other.slots[far])
            mask &= ~part | (leading[one][way] == leading[two][far])
    return mask
