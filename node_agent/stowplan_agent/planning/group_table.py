"""All ways to stream one group, and with peers to shard it, as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.options import streams_of
from stowplan_agent.planning.places import shard_bytes
from stowplan_api.placement import streamed_layers
from stowplan_api.record import Group

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class GroupTable:
    """Every way to stream one group, and to shard it over ``ranks``. Columns have one entry a way."""

    def __init__(self, group: Group, ranks: int) -> None:
        sizes = np.array(group.layer_bytes, dtype=np.float64)
        self.name = group.name
        self.streams = streams_of(group, peers=ranks > 1)
        self.layers = len(sizes)
        self.streamed = _mask([stream.streamed for stream in self.streams], self.layers)
        self.arriving = self.streamed
        """Layer by way: what passes through the ring."""
        self.sharded_bytes, self.shards = np.zeros(len(self.streams)), np.zeros(len(self.streams))
        """Bytes of the sharded layers, and what each rank holds of them."""
        if ranks > 1:
            sharded = _mask([stream.sharded for stream in self.streams], self.layers)
            self.arriving = self.streamed | sharded
            held = np.array([shard_bytes(group, (layer,), ranks) for layer in range(self.layers)], dtype=np.float64)
            self.sharded_bytes, self.shards = sizes @ sharded, held @ sharded
        self.count: Ints = self.streamed.sum(axis=0)
        self.passing: Ints = self.arriving.sum(axis=0)
        """Layers that pass through the ring."""
        self.slots: Ints = np.array([stream.slots for stream in self.streams], dtype=np.int64)
        self.ring: Floats = self.slots * np.where(self.arriving, sizes[:, None], 0.0).max(axis=0)
        self.sizes = sizes
        order = np.argsort(~self.streamed, axis=0, kind="stable")
        self.copied: Floats = np.vstack([np.zeros(len(self.streams)), np.cumsum(sizes[order], axis=0)]).T
        """Way by count: bytes of the first so many layers, streamed ones first, each in running order."""
        self.streamed_bytes: Floats = self.copied[np.arange(len(self.streams)), self.count]
        self.resident_bytes: Floats = self.copied[:, -1] - self.streamed_bytes - self.sharded_bytes
        self.first: Ints = np.where(self.count > 0, self.streamed.argmax(axis=0), self.layers)
        """The first streamed layer; the number of layers where none is."""
        self.last: Ints = np.where(self.count > 0, self.layers - 1 - self.streamed[::-1].argmax(axis=0), self.layers)
        self.final: Ints = np.where(self.passing > 0, self.layers - 1 - self.arriving[::-1].argmax(axis=0), self.layers)
        """The last layer that passes through the ring."""
        used = 0 + (self.count > 0) + (self.passing > self.count) + (self.passing < self.layers)
        self.in_two: Bools = used > 1
        """Whether layers are in at least two of the three places, so that a policy says which."""
        self.in_three: Bools = used > 2

    @cached_property
    def plain(self) -> Bools:
        """Whether a way has the fewest slots, layers in two places at most, and spreads them evenly."""
        strided = [
            stream.policy == "Strided"
            or streamed_layers(self.layers, stream.resident + len(stream.sharded), "Strided") == stream.streamed
            for stream in self.streams
        ]
        plain: Bools = np.array(strided) & ~self.in_three & (self.slots == self.slots.min())
        return plain


def _mask(layers: Sequence[Sequence[int]], count: int) -> Bools:
    """Layer by way: whether a way has it."""
    mask: Bools = np.zeros((count, len(layers)), dtype=np.bool_)
    columns = np.repeat(np.arange(len(layers)), [len(each) for each in layers])
    mask[np.fromiter(chain.from_iterable(layers), dtype=np.int64, count=len(columns)), columns] = True
    return mask
