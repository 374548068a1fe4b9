"""The link between the devices of a replica's ranks, and nothing else.

A rank pulls: it copies from a peer's device into its own, by its own copy engine. Ranks do not wait for one another on
the host. They keep in step by turns (`Board`): a turn is one layer that all ranks stream into the same slot at the same
point of the same sequence. Each rank fetches its own share over its own link and says so (`fetched`), pulls the others'
once they have said so (`pull`), and says that it is through (`swapped`), after which the others may write over their
slots. Turns count from 1, the same on all ranks.

Events are the accelerator's: what it has made goes in, and what comes out can be waited for there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from stowplan_agent.accelerators import Event
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import RanksError

AT_ONCE: Final = 200
"""Buffers of a meeting: fewer than the descriptors, or the handles, that one has room for."""


@dataclass(frozen=True)
class PeerRegion:
    """A buffer on another rank's device. ``handle`` is opaque to everything but the link that made it."""

    rank: int
    nbytes: int
    handle: Any


class Turns:
    """How many turns there were on a link. One count for all rings that there are and were: the counters go on."""

    def __init__(self) -> None:
        """None yet."""
        self.last = 0

    def next(self, count: int) -> range:
        """The numbers of so many new turns, from 1."""
        self.last += count
        return range(self.last - count + 1, self.last + 1)


class PeerLink(ABC):
    """One rank's end. Not thread-safe: the thread that runs the pipeline is the only one that uses it."""

    def __init__(self, circle: Circle) -> None:
        """``circle``: where buffers are introduced."""
        self.rank, self.ranks = circle.rank, circle.ranks
        self.turns = Turns()
        self._circle = circle

    @abstractmethod
    def allocate(self, nbytes: int) -> torch.Tensor:
        """A flat uint8 buffer on this rank's device to which the peers can be given access.

        Raises torch.OutOfMemoryError.
        """

    @abstractmethod
    def free(self, buffer: torch.Tensor) -> None:
        """Give a buffer of `allocate` back, after what is queued on this rank. No peer may have it any more."""

    def introduce(self, name: str, buffers: Sequence[torch.Tensor]) -> list[list[PeerRegion]]:
        """Give every peer access to these buffers of `allocate`; returns each rank's, by rank. All ranks meet here.

        Of this rank's own the list is empty. Raises, on all ranks, `NoPeerAccess` where one of them cannot reach
        another's memory, and `RanksError` for a rank that does not come or that brings another number of buffers.
        """
        for rank, contribution in enumerate(self._circle.meet(name, len(buffers))):
            if contribution.value != len(buffers):
                raise RanksError(
                    f"{name}: rank {rank} brought {contribution.value} buffers and rank {self.rank} {len(buffers)}"
                )
        found: list[list[PeerRegion]] = [[] for _ in range(self.ranks)]
        for first in range(0, len(buffers), AT_ONCE):
            some = self._introduce(f"{name}, from buffer {first}", buffers[first : first + AT_ONCE])
            for regions, more in zip(found, some, strict=True):
                regions.extend(more)
        return found

    @abstractmethod
    def _introduce(self, name: str, buffers: Sequence[torch.Tensor]) -> list[list[PeerRegion]]:
        """The same for no more buffers than a meeting has room for, and as many on all ranks."""

    @abstractmethod
    def region(self, buffer: torch.Tensor) -> PeerRegion:
        """A buffer of this rank's own as something to pull from: the rank's own shard, say."""

    @abstractmethod
    def part(self, name: str, regions: Sequence[Sequence[PeerRegion]]) -> None:
        """Give up the access that `introduce` gave. All ranks meet: afterwards the buffers may be freed."""

    @abstractmethod
    def free_of(self, turn: int, after: Sequence[Event]) -> Event:
        """An event after all of ``after`` at which every peer has swapped ``turn`` too; 0 is the turn of no layer."""

    @abstractmethod
    def fetched(self, turn: int, end: Event) -> None:
        """Let the peers know, at this event, that this rank's share of the turn is here."""

    @abstractmethod
    def pull(self, destination: torch.Tensor, source: PeerRegion, start: int, *, turn: int, after: Event) -> None:
        """Queue a copy of ``destination.nbytes`` bytes from ``start`` of a buffer, to this device or to host memory.

        Not before ``after``, nor before that peer has fetched ``turn``; 0 for bytes that are there for good.
        """

    @abstractmethod
    def swapped(self, turn: int, own: Event) -> Event:
        """The event at which all pulls so far and ``own`` are over; the peers get to know of it, but for turn 0."""

    @abstractmethod
    def close(self) -> None:
        """Stop what the link started."""
