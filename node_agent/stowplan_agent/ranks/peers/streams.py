"""How turns are kept by streams alone: which of them waits for what, and says what, on every rank.

Three streams beside the accelerator's two, so that what waits for a peer holds up nothing else:

- gate: waits for this rank's compute and for the peers' swaps; what it comes to may be written into a slot.
- voice: waits for a fetch, and tells the peers.
- peer: waits for the gate and for a peer's fetch, and pulls; tells the peers when all pulls of a turn are over.

No host waits for another one. A stream is known here by the little that is asked of it, so that the order of all ranks'
streams is tested on any machine, under every interleaving that chance comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from stowplan_agent.accelerators import Event
from stowplan_agent.ranks.board import Turn
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion


class PeerStream(Protocol):
    """A stream that can wait for words of the board, and write them. Everything is queued; nothing blocks the host."""

    def wait(self, event: Event) -> None:
        """For an event of this device."""

    def wait_word(self, rank: int, word: Turn, turn: int) -> None:
        """Until a rank's word has come to a turn."""

    def write_word(self, rank: int, word: Turn, turn: int) -> None:
        """Once everything before it on this stream can be seen by all devices."""

    def copy(self, destination: torch.Tensor, source: PeerRegion, start: int) -> None:
        """``destination.nbytes`` bytes from ``start`` of a region."""

    def record(self, *, timed: bool = False) -> Event:
        """An event at the present end."""


class StreamPeerLink(PeerLink):
    """The part of a link that is the same for all devices with streams; memory is what is left."""

    def __init__(self, circle: Circle, new_stream: Callable[[], PeerStream]) -> None:
        """Makes the three streams."""
        super().__init__(circle)
        self._gate, self._voice, self._peer = new_stream(), new_stream(), new_stream()

    def free_of(self, turn: int, after: Sequence[Event]) -> Event:
        """On the gate."""
        for event in after:
            self._gate.wait(event)
        for peer in range(self.ranks) if turn else ():
            if peer != self.rank:
                self._gate.wait_word(peer, Turn.SWAPPED, turn)
        return self._gate.record()

    def fetched(self, turn: int, end: Event) -> None:
        """On the voice."""
        self._voice.wait(end)
        self._voice.write_word(self.rank, Turn.FETCHED, turn)

    def pull(self, destination: torch.Tensor, source: PeerRegion, start: int, *, turn: int, after: Event) -> None:
        """On the peer stream."""
        self._peer.wait(after)
        if turn:
            self._peer.wait_word(source.rank, Turn.FETCHED, turn)
        self._peer.copy(destination, source, start)

    def swapped(self, turn: int, own: Event) -> Event:
        """On the peer stream: first the peers get to know, who need not wait for this rank's own share."""
        if turn:
            self._peer.write_word(self.rank, Turn.SWAPPED, turn)
        self._peer.wait(own)
        return self._peer.record(timed=True)
