"""The other ranks as the weights engine of one of them sees them: one copy of what is the same, slots and shards.

This is where the engine, which knows of no ranks, and the store and the peer link, which know of no placements, meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.peers import Crossing, PeerLink, Shards
from stowplan_agent.ranks.peers.exchange import PIECE_BYTES
from stowplan_agent.ranks.peers.shards import PATIENCE
from stowplan_agent.ranks.store import NodeStore
from stowplan_agent.ranks.store.contents import digest, digest_of
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.unit import Unit


class Neighbourhood:
    """What `WeightsEngine` is given as ``neighbours``, once its ledger is bound: see `weights.neighbours`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        circle: Circle,
        accelerator: Accelerator,
        link: PeerLink | None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """``link``: None where devices have no access to one another; each rank then fetches everything itself."""
        self._circle = circle
        self._accelerator = accelerator
        self._ledger = ledger
        self._link = link
        self._piece_bytes = piece_bytes
        self.store = NodeStore(circle, accelerator, ledger, swaps=link is not None)

    def slots(self, shards: Shards | None = None) -> Crossing | None:
        """For a ring that is about to open."""
        if self._link is None:
            return None
        return Crossing(self._accelerator, self._link, self._circle, shards=shards, piece_bytes=self._piece_bytes)

    def shards(self, owner: str) -> Shards | None:
        """Of a component, none of whose layers is in shards yet."""
        if self._link is None or self._circle.ranks == 1:
            return None
        return Shards(owner, self._accelerator, self._link, self._circle, self._ledger)

    def meet(self, name: str, value: Any = None) -> list[Any]:
        """At the start of what all do in step, or for what all have to know."""
        return [contribution.value for contribution in self._circle.meet(name, value)]

    def all_do(self, name: str, work: Callable[[], object]) -> None:
        """Each within the time that filling takes."""
        self._circle.all_do(name, work, patience=PATIENCE)

    def contents(self, unit: Unit) -> str:
        """By the files that have the bytes; by the bytes where none has; by the rank where they may change."""
        if unit.identity is None and unit.source is not None and not unit.changes:
            unit.identity = unit.source.identity() or digest(unit.source)
        return f"of rank {self._circle.rank}" if unit.changes or unit.identity is None else unit.identity

    def digest(self, unit: Unit) -> str:
        """By the bytes themselves, from its host copy or else from its source."""
        if unit.host is not None:
            return digest_of(unit.views(unit.host.tensor))
        assert unit.source is not None, "a unit whose bytes are asked for has them in host memory or in files"
        return digest(unit.source)
