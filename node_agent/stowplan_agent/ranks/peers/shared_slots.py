"""The slots of a ring that every rank has, and the shards of the layers that lie on no host: what an engine works with.

Both are taken by all ranks or by none: a card that is full fails the move on every rank, and nothing is held after.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.accelerators.interface import ByteSource
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.parts import Part
from stowplan_agent.ranks.peers.exchange import PIECE_BYTES, Exchange
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion
from stowplan_agent.ranks.shares import share


def take_slots(
    name: str,
    sizes: Sequence[int],
    accelerator: Accelerator,
    link: PeerLink,
    circle: Circle,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> tuple[Exchange, list[torch.Tensor]]:
    """Slots of these sizes on every rank, and this rank's buffers of them; `give_back_slots` undoes it. All meet.

    Raises torch.OutOfMemoryError or `RanksError`, with nothing held on any rank.
    """
    slots = _take(f"take the slots of {name}", sizes, link, circle)
    try:
        return Exchange(name, slots, accelerator, link, piece_bytes=piece_bytes), slots
    except BaseException:
        _free(slots, link)
        raise


def give_back_slots(exchange: Exchange, slots: Sequence[torch.Tensor], link: PeerLink) -> None:
    """Part from the peers' slots, and free this rank's. All ranks meet."""
    exchange.close()
    _free(slots, link)


class Shards:
    """The shards of some layers: this rank's, and access to those of its peers. Layers are known by any keys."""

    def __init__(
        self,
        name: str,
        layers: Mapping[Hashable, ByteSource],
        accelerator: Accelerator,
        link: PeerLink,
        circle: Circle,
    ) -> None:
        """Take the memory and queue the copies; each rank reads its share only. All ranks meet, with the same layers.

        Raises what `take_slots` raises, and what a source raises, with nothing held on any rank.
        """
        self._name, self._link = name, link
        self._sizes = {key: source.nbytes for key, source in layers.items()}
        own = {key: share(source.nbytes, link.ranks, link.rank) for key, source in layers.items()}
        # Never empty: a link has no handle for nothing.
        buffers = _take(f"take the shards of {name}", [max(1, one.nbytes) for one in own.values()], link, circle)
        self._shards = dict(zip(layers, buffers, strict=True))

        def load() -> None:
            ends = []
            for key, part in own.items():
                if part.nbytes:
                    source = Part(layers[key], part.start, part.nbytes)
                    ends.append(accelerator.fill(self._shards[key][: part.nbytes], source, after=None))
            for end in ends:
                accelerator.wait(end)
            accelerator.synchronize()  # a peer may take them as soon as it knows of them

        try:
            circle.all_do(f"load the shards of {name}", load)
            self._regions = link.introduce(f"shards of {name}", buffers)
        except BaseException:
            with suppress(Exception):  # what is on its way must end first; what it says is no news
                accelerator.synchronize()
            _free(buffers, link)
            raise

    @property
    def device_bytes(self) -> int:
        """What they take on this rank's device."""
        return sum(shard.nbytes for shard in self._shards.values())

    def assemble(self, key: Hashable, exchange: Exchange, slot: int, *, after: Event | None) -> Event:
        """Queue a layer into a slot; returns the event at which it is whole."""
        at = list(self._shards).index(key)
        own = self._link.region(self._shards[key])
        others: list[PeerRegion | None] = [regions[at] if regions else None for regions in self._regions]
        return exchange.assemble(slot, self._sizes[key], own, others, after=after)

    def close(self) -> None:
        """Part from the peers' shards, and free this rank's. All ranks meet."""
        self._link.part(f"shards of {self._name}", self._regions)
        _free(list(self._shards.values()), self._link)
        self._shards, self._regions = {}, []


def _take(what: str, sizes: Sequence[int], link: PeerLink, circle: Circle) -> list[torch.Tensor]:
    taken: list[torch.Tensor] = []

    def take() -> None:
        for nbytes in sizes:
            taken.append(link.allocate(nbytes))

    try:
        circle.all_do(what, take)
    except BaseException:
        _free(taken, link)
        raise
    return taken


def _free(buffers: Sequence[torch.Tensor], link: PeerLink) -> None:
    for buffer in buffers:
        link.free(buffer)
