"""A layer over the links of all ranks: each fetches its share from the host, and they swap the rest.

The slots of one ring exist on every rank, and rank by rank the same layers pass through the same slots in the same
order, for all ranks run the same pass. So the bytes of a layer cross each host link once for all ranks together, and
its seconds are those of a share. A share is passed on piece by piece, so that the swap ends soon after the fetch: with
two slots, what the swap takes after it is time in which the link stands still. A sharded layer is put together from the
shards that lie on the devices: no host link at all. Which bytes are whose is said by `shares`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion
from stowplan_agent.ranks.shares import piece_count, pieces, shares

PIECE_BYTES: Final = 32 << 20
"""Long against what it costs to queue a copy and to pass on that it is over, short against a layer."""


class Exchange:
    """The slots of one ring, on all ranks."""

    def __init__(
        self,
        name: str,
        slots: Sequence[torch.Tensor],
        accelerator: Accelerator,
        link: PeerLink,
        *,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """``slots``: this rank's, of `PeerLink.allocate`; every rank has as many, of the same sizes. All ranks meet."""
        self._piece_bytes = piece_bytes
        self.name = name
        self._slots = list(slots)
        self._accelerator = accelerator
        self._link = link
        self._regions = link.introduce(name, slots)
        self._turn_of = [0] * len(self._slots)
        """The last turn of each slot: it may be written again once every rank has swapped that."""
        self._end_of: list[Event] = [None] * len(self._slots)
        """The last end of each slot: what nobody has computed with may still be on its way."""

    def close(self) -> None:
        """Give the peers' slots up; all ranks meet. This rank's own are its owner's to free."""
        self._link.part(self.name, self._regions)
        self._regions = []

    def stream(self, slot: int, host: torch.Tensor, *, pinned: bool, after: Event | None) -> Event:
        """Queue a layer from its host copy into a slot, not before ``after``; returns the event at which it is whole.

        ``host`` is all of the layer's bytes, of which this rank reads its share; ``pinned`` says whether that is.
        Every rank calls this for the same layers and slots in the same order. Nothing blocks the host on a GPU.
        """
        ranks, rank, buffer = self._link.ranks, self._link.rank, self._slots[slot]
        count = piece_count(host.nbytes, ranks, self._piece_bytes)
        parts = [pieces(one, count) for one in shares(host.nbytes, ranks)]
        arrived = free = self._free(slot, after)
        turns = self._link.turns.next(count)
        for turn, own in zip(turns, parts[rank], strict=True):
            if own.nbytes:
                arrived = self._accelerator.copy(buffer[own.part], host[own.part], pinned=pinned, after=free)
            self._link.fetched(turn, arrived)
        for number, turn in enumerate(turns):
            for peer in self._others():
                part = parts[peer][number]
                if part.nbytes:
                    source = self._regions[peer][slot]
                    self._link.pull(buffer[part.part], source, part.start, turn=turn, after=free)
        self._turn_of[slot] = turns[-1]
        return self._ends(slot, self._link.swapped(turns[-1], arrived))

    def alone(self, slot: int, copy: Callable[[torch.Tensor, Event], Event], *, after: Event | None) -> Event:
        """Queue a layer that is not the peers' next one too, over this rank's own link, and without a turn.

        ``copy`` is given the slot and the event at which it is free, and returns the event at which the layer is whole.
        """
        return self._ends(slot, copy(self._slots[slot], self._free(slot, after)))

    def assemble(self, slot: int, nbytes: int, shards: Sequence[PeerRegion], *, after: Event | None) -> Event:
        """Queue a sharded layer of ``nbytes`` into a slot; returns the event at which it is whole.

        ``shards``: every rank's, by rank; this rank's own as a region of itself.
        """
        parts, buffer = shares(nbytes, self._link.ranks), self._slots[slot]
        free = self._free(slot, after)
        for rank in (self._link.rank, *self._others()):
            if parts[rank].nbytes:
                self._link.pull(buffer[parts[rank].part], shards[rank], 0, turn=0, after=free)
        return self._ends(slot, self._link.swapped(0, free))

    def _free(self, slot: int, after: Event | None) -> Event:
        now = self._accelerator.record() if after is None else after
        last = self._end_of[slot]
        return self._link.free_of(self._turn_of[slot], [now] if last is None else [now, last])

    def _ends(self, slot: int, end: Event) -> Event:
        self._end_of[slot] = end
        return end

    def _others(self) -> list[int]:
        """The peers, the next one first: so that no two ranks pull from the same one at once."""
        ranks, rank = self._link.ranks, self._link.rank
        return [(rank + step) % ranks for step in range(1, ranks)]
