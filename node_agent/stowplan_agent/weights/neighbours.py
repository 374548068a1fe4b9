"""What a component asks of the other ranks that run it, where there are any: a host copy, slots, and shards of all.

The engine does not know who they are or how bytes cross: whoever starts several ranks gives it these
(`ranks.neighbourhood`). Every call is made by all ranks, in the same order, as they place the same components and run
the same passes; they meet in it, but for `Neighbours.contents`, `Neighbours.digest` and
`ShardsOfAll.read`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from stowplan_agent.accelerators import Event
from stowplan_agent.accelerators.interface import ByteSource
from stowplan_agent.weights.ledger import Ledger


class SlotsOfAll(Protocol):
    """The slots of one ring on all ranks (`ranks.peers.Crossing`)."""

    def open(self, name: str, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Take them on every rank, or on none."""

    def bring(self, slot: int, layer: Any, after: Event | None) -> Event:
        """Queue a layer into one."""

    def close(self) -> None:
        """Give them back."""


class StoreOfAll(Protocol):
    """Host copies of all ranks (`ranks.store.NodeStore`)."""

    def take(self, owner: str, sizes: Sequence[int], contents: Sequence[str]) -> list[Any]:
        """Buffers of these sizes, on every rank or on none."""

    def fill(self, jobs: Sequence[tuple[ByteSource, Any]], filled: Callable[[int], None]) -> None:
        """Each rank its share, from the sources."""

    def read_back(self, jobs: Sequence[tuple[torch.Tensor, Any]]) -> None:
        """Each rank its share, from its device."""

    def settle(self, buffers: Sequence[Any]) -> None:
        """Nobody writes to them any more."""

    def abandon(self, buffers: Sequence[Any]) -> None:
        """Give up what was not settled."""


class ShardsOfAll(Protocol):
    """The layers of one component that lie on the devices of all ranks (`ranks.peers.Shards`)."""

    def __contains__(self, layer: Hashable) -> bool: ...

    def agree(self, contents: Iterable[str]) -> bool:
        """Whether all ranks say the same of these layers, in the words of `Neighbours.contents`."""

    def take(self, layers: Mapping[Any, ByteSource]) -> Mapping[Any, torch.Tensor]:
        """Put layers there, on every rank or on none; returns this rank's shards."""

    def give_back(self, layers: Iterable[Hashable]) -> None:
        """Let these layers be there no more."""

    def read(self, layer: Hashable, target: torch.Tensor) -> None:
        """Write a whole layer to host memory."""


class Neighbours(Protocol):
    """The other ranks, as the engine of one of them sees them."""

    @property
    def store(self) -> StoreOfAll:
        """Where host copies are made."""

    def slots(self, shards: Any = None) -> SlotsOfAll | None:
        """For a ring that is about to open; None where each rank has slots of its own. ``shards``: of `shards`."""

    def shards(self, owner: str) -> ShardsOfAll | None:
        """For a component that has none yet; None where devices have no access to one another."""

    def meet(self, name: str, value: Any = None) -> Sequence[Any]:
        """Wait until every rank has come to the same point; returns the JSON values that they bring, by rank."""

    def all_do(self, name: str, work: Callable[[], object]) -> None:
        """Do something on every rank: a failure of one is a failure of all."""

    def contents(self, unit: Any) -> str:
        """What bytes a unit's host copy has: the same text on ranks whose bytes are the same, but for what was made."""

    def digest(self, unit: Any) -> str:
        """The same of any unit that is in host memory, or in files, at the cost of reading it."""


NeighboursOf = Callable[[Ledger], Neighbours]
"""The neighbours of the engine with this ledger, which says what they hold for it."""
