"""A peer link that runs anywhere: emulated cards of several processes, whose buffers are shared memory.

What is real: the processes, the bytes, the turns, and the asynchrony (pulls happen on a thread of their own, once the
peer has really fetched). Seconds are computed, as the emulated card's are: a pull takes latency + bytes / rate, on a
link that is not the host's, and not before the moment at which the peer's fetch is over on the peer's clock. Clocks of
all ranks begin at 0 together. One thing differs from a GPU: the host waits until the peers have queued the same turn,
for their moments must be known. It gives up after ``patience`` seconds.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from stowplan_agent.accelerators.copy_thread import CopyThread, EmulatedEvent
from stowplan_agent.accelerators.emulated import POISON, EmulatedAccelerator
from stowplan_agent.ranks.board import REMEMBERED, Board, Turn, reached
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import RankLost
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
LOOK_SECONDS: Final = 2e-4
"""Between looks at a peer's word. An emulated card's time does not pass meanwhile."""


class EmulatedPeerLink(PeerLink):
    """One emulated card's end. ``rate`` is bytes a second, if another than the card's; ``latency`` seconds a pull."""

    def __init__(
        self,
        accelerator: EmulatedAccelerator,
        circle: Circle,
        board: Board,
        *,
        rate: float | None = None,
        latency: float = 2e-5,
        patience: float = 60.0,
    ) -> None:
        """Starts two threads; `close` ends them."""
        super().__init__(circle)
        self._accelerator = accelerator
        self._board = board
        self._rate = accelerator.card.peer_rate if rate is None else rate
        self._latency, self._patience = latency, patience
        self._files: dict[int, int] = {}
        self._voice, self._peer = CopyThread(), CopyThread()
        self._peer_free = 0.0
        self._pulls: list[EmulatedEvent] = []

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Shared memory, charged against the card's capacity."""
        self._accelerator.hold(nbytes)
        descriptor = os.memfd_create("stowplan-emulated-device")
        os.ftruncate(descriptor, nbytes)
        with _disable_current_modes(), torch.inference_mode(False):
            buffer = torch.from_numpy(np.frombuffer(mmap.mmap(descriptor, nbytes), dtype=np.uint8))
            buffer.fill_(POISON)
        self._files[buffer.data_ptr()] = descriptor
        return buffer

    def free(self, buffer: torch.Tensor) -> None:
        """Uncharged, and spoiled for whoever still reads it."""
        os.close(self._files.pop(buffer.data_ptr()))
        self._peer.drain()
        self._accelerator.let_go(buffer.nbytes)
        with _disable_current_modes():
            buffer.fill_(POISON)

    def _introduce(self, name: str, buffers: Sequence[torch.Tensor]) -> list[list[PeerRegion]]:
        """By descriptors of the shared memory."""
        own = [buffer.nbytes for buffer in buffers]
        met = self._circle.meet(name, own, [self._files[buffer.data_ptr()] for buffer in buffers])
        found: list[list[PeerRegion]] = [[] for _ in met]
        for rank, contribution in enumerate(met):
            if rank == self.rank:
                continue
            for nbytes, descriptor in zip(contribution.value, contribution.descriptors, strict=True):
                memory = np.frombuffer(mmap.mmap(descriptor, nbytes, prot=mmap.PROT_READ), dtype=np.uint8)
                os.close(descriptor)
                found[rank].append(PeerRegion(rank, nbytes, memory))
        return found

    def region(self, buffer: torch.Tensor) -> PeerRegion:
        """The buffer's own memory."""
        return PeerRegion(self.rank, buffer.nbytes, buffer.numpy())

    def part(self, name: str, regions: Sequence[Sequence[PeerRegion]]) -> None:
        """After the pulls that are queued here, and everybody's."""
        self._peer.drain()
        self._circle.meet(f"{name}: over")

    def free_of(self, turn: int, after: Sequence[EmulatedEvent]) -> EmulatedEvent:
        """The host waits for the peers, and for what was queued here before, in truth; the event is computed."""
        moment = max((event.moment for event in after), default=0.0)
        for event in after:
            if event.done is not None:
                event.done.wait()
        for peer in self._others() if turn else ():
            moment = max(moment, self._moment(peer, Turn.SWAPPED, turn))
            self._until(peer, Turn.SWAPPED, turn)
        return EmulatedEvent(moment)

    def fetched(self, turn: int, end: EmulatedEvent) -> None:
        """The moment at once, the word when it is true."""
        self._announce(Turn.FETCHED, turn, end.moment)
        self._voice.queue(partial(self._say, turn, end))

    def pull(
        self, destination: torch.Tensor, source: PeerRegion, start: int, *, turn: int, after: EmulatedEvent
    ) -> None:
        """On the peer thread."""
        moment = max(self._peer_free, after.moment)
        if turn:
            moment = max(moment, self._moment(source.rank, Turn.FETCHED, turn))
        self._peer_free = moment + self._latency + destination.nbytes / self._rate
        work = partial(self._copy, destination.numpy(), source, start, turn)
        self._pulls.append(self._peer.queue(work, self._peer_free))

    def swapped(self, turn: int, own: EmulatedEvent) -> EmulatedEvent:
        """Fails with the first pull that failed; the peers then wait in vain, and say so."""
        pulls, self._pulls = self._pulls, []
        last = max((pull.moment for pull in pulls), default=0.0)
        if turn:
            self._announce(Turn.SWAPPED, turn, last)
        return self._peer.queue(partial(self._finish, turn, pulls, own), max(last, own.moment))

    def close(self) -> None:
        """Ends the threads after what is queued."""
        self._voice.close()
        self._peer.close()

    def _others(self) -> list[int]:
        return [rank for rank in range(self.ranks) if rank != self.rank]

    def _announce(self, word: Turn, turn: int, moment: float) -> None:
        row = self._board.moments(self.rank, word)[turn % REMEMBERED]
        row[1] = moment
        row[0] = turn

    def _moment(self, peer: int, word: Turn, turn: int) -> float:
        row = self._board.moments(peer, word)[turn % REMEMBERED]
        self._look(lambda: row[0] == turn, peer, f"queue turn {turn}")
        return float(row[1])

    def _until(self, peer: int, word: Turn, turn: int) -> None:
        counter = self._board.counter(peer, word)
        self._look(lambda: reached(int(counter[0]), turn), peer, f"have {word.name.lower()} turn {turn}")

    def _look(self, seen: Callable[[], bool], peer: int, what: str) -> None:
        until = time.monotonic() + self._patience
        while not seen():
            if time.monotonic() > until:
                raise RankLost(peer, f"rank {self.rank} waited {self._patience:g} s for rank {peer} to {what}")
            time.sleep(LOOK_SECONDS)

    def _say(self, turn: int, end: EmulatedEvent) -> None:
        if end.done is not None:
            end.done.wait()
        if not end.errors:  # else the peers wait in vain, and say so
            self._board.counter(self.rank, Turn.FETCHED)[0] = turn % (1 << 32)

    def _copy(self, destination: Bytes, source: PeerRegion, start: int, turn: int) -> None:
        if turn:
            self._until(source.rank, Turn.FETCHED, turn)
        np.copyto(destination, source.handle[start : start + destination.nbytes])

    def _finish(self, turn: int, pulls: Sequence[EmulatedEvent], own: EmulatedEvent) -> None:
        for event in (*pulls, own):
            if event is own and turn:
                self._board.counter(self.rank, Turn.SWAPPED)[0] = turn % (1 << 32)
            if event.done is not None:
                event.done.wait()
            if event.errors:
                raise event.errors[0]
