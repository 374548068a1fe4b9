"""The layers of one component that lie in shards: this rank's on its device, and access to those of its peers.

Taken by all ranks or by none, and given back by all together: a shard that a peer may still pull is never freed. Which
bytes of a layer are whose is said by `shares`. What they take is on the ledger of each rank, under the component.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.accelerators.interface import ByteSource
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.parts import Part
from stowplan_agent.ranks.peers.exchange import Exchange
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion
from stowplan_agent.ranks.peers.shared_slots import free_buffers, take_buffers
from stowplan_agent.ranks.shares import share, shares
from stowplan_agent.weights.ledger import Ledger, Tier

PATIENCE: Final = 900.0
"""Seconds that all ranks have to fill their shards: as long as to fill the host store."""


@dataclass(frozen=True)
class _Shard:
    """One layer. ``regions``: every rank's shard, by rank, this rank's own among them."""

    nbytes: int
    buffer: torch.Tensor
    regions: Sequence[PeerRegion]


class Shards:
    """One rank's end. Layers are known by any keys."""

    def __init__(self, owner: str, accelerator: Accelerator, link: PeerLink, circle: Circle, ledger: Ledger) -> None:
        """No layer is in shards yet."""
        self._owner = owner
        self._accelerator = accelerator
        self._link = link
        self._circle = circle
        self._ledger = ledger
        self._shards: dict[Hashable, _Shard] = {}

    def __contains__(self, layer: Hashable) -> bool:
        return layer in self._shards

    def agree(self, contents: Iterable[str]) -> bool:
        """Whether all ranks say the same of what bytes their layers have: only such can lie in shards. All meet."""
        said = hashlib.blake2b("\n".join(contents).encode(), digest_size=16).hexdigest()
        return len({one.value for one in self._circle.meet(f"{self._owner}: the same layers", said)}) == 1

    def take(self, layers: Mapping[Hashable, ByteSource]) -> dict[Hashable, torch.Tensor]:
        """Put layers into shards; returns this rank's, which it fills from the sources. All ranks meet, with the same.

        Raises `RanksError`, torch.OutOfMemoryError, and what a source raises; then no rank has a shard of any of them.
        """
        own = {key: share(source.nbytes, self._link.ranks, self._link.rank) for key, source in layers.items()}
        # Never empty: a link has no handle for nothing.
        sizes = [max(1, one.nbytes) for one in own.values()]
        buffers = take_buffers(f"take the shards of {self._owner}", sizes, self._link, self._circle)
        found = {key: buffer[: own[key].nbytes] for key, buffer in zip(layers, buffers, strict=True)}
        parts = [(found[key], Part(layers[key], own[key].start, own[key].nbytes)) for key in layers if own[key].nbytes]
        try:
            self._circle.all_do(f"fill the shards of {self._owner}", lambda: self._fill(parts), patience=PATIENCE)
            regions = self._link.introduce(f"shards of {self._owner}", buffers)
        except BaseException:
            with suppress(Exception):  # what is on its way must end first; what it says is no news
                self._accelerator.synchronize()
            free_buffers(buffers, self._link)
            raise
        for at, (key, buffer) in enumerate(zip(layers, buffers, strict=True)):
            everybodys = [one[at] if one else self._link.region(buffer) for one in regions]
            self._shards[key] = _Shard(layers[key].nbytes, buffer, everybodys)
            self._ledger.take(self._owner, Tier.DEVICE, buffer.nbytes)
        return found

    def give_back(self, layers: Iterable[Hashable]) -> None:
        """Part from the peers' shards of these layers, and free this rank's. All ranks meet, with the same layers."""
        gone = [self._shards.pop(key) for key in layers]
        others = [
            [] if rank == self._link.rank else [one.regions[rank] for one in gone] for rank in range(self._link.ranks)
        ]
        self._link.part(f"shards of {self._owner}", others)
        free_buffers([one.buffer for one in gone], self._link)
        self._ledger.give_back(self._owner, Tier.DEVICE, sum(one.buffer.nbytes for one in gone))

    def assemble(self, layer: Hashable, exchange: Exchange, slot: int, *, after: Event | None) -> Event:
        """Queue a layer into a slot; returns the event at which it is whole."""
        shard = self._shards[layer]
        return exchange.assemble(slot, shard.nbytes, shard.regions, after=after)

    def read(self, layer: Hashable, target: torch.Tensor) -> None:
        """Write all bytes of a layer to host memory and wait for them: off the hot path, and for this rank alone."""
        shard, start = self._shards[layer], self._accelerator.record()
        for region, part in zip(shard.regions, shares(shard.nbytes, self._link.ranks), strict=True):
            if part.nbytes:
                self._link.pull(target[part.part], region, 0, turn=0, after=start)
        self._accelerator.wait(self._link.swapped(0, start))
        self._accelerator.synchronize()

    def _fill(self, parts: Sequence[tuple[torch.Tensor, ByteSource]]) -> None:
        for end in [self._accelerator.fill(buffer, source, after=None) for buffer, source in parts]:
            self._accelerator.wait(end)
        self._accelerator.synchronize()  # a peer may take them as soon as it knows of them
