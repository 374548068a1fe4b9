"""The other ranks as the weights engine of one of them sees them: slots that all have, one copy of what is the same.

This is where the engine, which knows of no ranks, and the store and the peer link, which know of no placements, meet.
"""

from __future__ import annotations

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.peers import Crossing, PeerLink
from stowplan_agent.ranks.peers.exchange import PIECE_BYTES
from stowplan_agent.ranks.store import NodeStore
from stowplan_agent.ranks.store.contents import digest
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
        self._link = link
        self._piece_bytes = piece_bytes
        self.store = NodeStore(circle, accelerator, ledger, swaps=link is not None)

    def slots(self) -> Crossing | None:
        """For a ring that is about to open."""
        if self._link is None:
            return None
        return Crossing(self._accelerator, self._link, self._circle, piece_bytes=self._piece_bytes)

    def contents(self, unit: Unit) -> str:
        """By the files that have the bytes; by the bytes where none has; by the rank where they may change."""
        if unit.identity is None and unit.source is not None and not unit.changes:
            unit.identity = unit.source.identity() or digest(unit.source)
        return f"of rank {self._circle.rank}" if unit.changes or unit.identity is None else unit.identity
