"""How layers come into the slots of a component's ring where several ranks run it: what a ring needs to know of it.

A ring opens with an interval and closes with it, on all ranks, and brings layers into slots in one order. Where a layer
comes from is decided here: from the copy that all ranks share, by shares; from the shards on the cards; or, where it is
this rank's own affair, over its own link alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.peers.exchange import PIECE_BYTES, Exchange
from stowplan_agent.ranks.peers.interface import PeerLink
from stowplan_agent.ranks.peers.shards import Shards
from stowplan_agent.ranks.peers.shared_slots import give_back_slots, take_slots
from stowplan_agent.ranks.store import SharedBuffer


class Layer(Protocol):
    """What is asked of a unit of the weights engine (`weights.unit.Unit`)."""

    host: Any
    """Its host copy, if it has one."""

    def __hash__(self) -> int: ...

    def copy_to(self, buffer: torch.Tensor, after: Event | None) -> Event:
        """Queue a copy from wherever it is into a device buffer."""


class Crossing:
    """The slots of one ring on all ranks, and the ways into them."""

    def __init__(
        self,
        accelerator: Accelerator,
        link: PeerLink,
        circle: Circle,
        *,
        shards: Shards | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """``shards``: of the layers that lie on the cards; the layer itself is its key there."""
        self._accelerator = accelerator
        self._link = link
        self._circle = circle
        self._shards = shards
        self._piece_bytes = piece_bytes
        self._slots: list[torch.Tensor] = []
        self._exchange: Exchange | None = None

    def open(self, name: str, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Slots of these sizes, on every rank. All meet. Raises what `take_slots` raises, with nothing held."""
        self._exchange, self._slots = take_slots(
            name, sizes, self._accelerator, self._link, self._circle, piece_bytes=self._piece_bytes
        )
        return self._slots

    def bring(self, slot: int, layer: Layer, after: Event | None) -> Event:
        """Queue a layer into a slot, not before ``after``; every rank brings the same layers in the same order."""
        assert self._exchange is not None, "a ring brings layers while it is open"
        if self._shards is not None and layer in self._shards:
            return self._shards.assemble(layer, self._exchange, slot, after=after)
        host = layer.host
        if isinstance(host, SharedBuffer):
            return self._exchange.stream(slot, host.tensor, pinned=host.pinned, after=after)
        return self._exchange.alone(slot, layer.copy_to, after=after)

    def close(self) -> None:
        """Give the slots back; all ranks meet. Closing again does nothing."""
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            give_back_slots(exchange, self._slots, self._link)
            self._slots = []
