"""What the measures of `ranks.py` work with: a card, its peer link, bytes that can be recognised, compute, and time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks.peers import Exchange, PeerLink
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.seat import Seat
from stowplan_agent.weights.ledger import Ledger

SIDE = 8192
"""Of the matrices whose product is the compute beside a stream: 1.4 ms on an H200."""
PERIOD = 4093 * 256
"""Bytes after which a layer's pattern repeats: no share begins where another one does in it."""


class Pattern:
    """The bytes of one layer, as a source: they differ from layer to layer and from place to place."""

    def __init__(self, layer: int, nbytes: int) -> None:
        self.nbytes = nbytes
        words = np.random.default_rng(layer).integers(0, 256, PERIOD, dtype=np.uint8)
        self._twice = np.concatenate([words, words])

    def read(self, start: int, target: torch.Tensor) -> None:
        """As a `ByteSource`."""
        memory = target.numpy()
        for done in range(0, memory.nbytes, PERIOD):
            part = memory[done : done + PERIOD]
            at = (start + done) % PERIOD
            part[:] = self._twice[at : at + part.nbytes]


class Cards:
    """One rank's card and what belongs to it."""

    def __init__(self, seat: Seat, *, tiny: bool, layers: int, layer_mib: int, passes: int) -> None:
        self.seat = seat
        self.layers, self.passes, self.tiny = layers, passes, tiny
        self.nbytes = layer_mib << (10 if tiny else 20)
        self.ledger = Ledger()
        self.accelerator: Accelerator
        self.link: PeerLink
        if tiny:
            emulated = EmulatedAccelerator(EmulatedCard(capacity_bytes=256 << 20))
            self.accelerator, self.link = emulated, EmulatedPeerLink(emulated, seat.circle, seat.board)
        else:
            from stowplan_agent.accelerators.cuda import CudaAccelerator
            from stowplan_agent.ranks.peers.cuda import CudaPeerLink

            cuda = CudaAccelerator(seat.rank)
            self.accelerator, self.link = cuda, CudaPeerLink(cuda, seat.circle, seat.board)
            self._left, self._right, self._product = (
                torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=cuda.device) for _ in range(3)
            )

    @property
    def count(self) -> int:
        """Layers of all passes."""
        return self.layers * self.passes

    def close(self) -> None:
        """Link first: it belongs to the card."""
        self.link.close()
        self.accelerator.close()

    def meet(self, name: str) -> None:
        """Wait for this card, then for the other ranks."""
        self.accelerator.synchronize()
        self.seat.circle.meet(name, patience=300.0)

    def compute(self, times: int) -> None:
        """So many units of compute on the compute stream."""
        if isinstance(self.accelerator, EmulatedAccelerator):
            self.accelerator.clock.advance(1e-4 * times)
            return
        for _ in range(times):
            torch.mm(self._left, self._right, out=self._product)

    def seconds(self, work: Callable[[], Event | None]) -> float:
        """Of the device, from now to the event that the work returns, or to the end of its compute."""
        self.accelerator.synchronize()
        start = self.accelerator.record()
        end = work()
        if end is not None:
            self.accelerator.wait(end)
        last = self.accelerator.record()
        self.accelerator.synchronize()
        return self.accelerator.elapsed(start, last)

    def exchange(self, name: str, slots: int, piece_bytes: int) -> tuple[Exchange, list[torch.Tensor]]:
        """A ring's slots on all ranks, and this rank's buffers of them."""
        buffers = [self.link.allocate(self.nbytes) for _ in range(slots)]
        return Exchange(name, buffers, self.accelerator, self.link, piece_bytes=piece_bytes), buffers

    def passes_over(self, ahead: Callable[[int, Event], Event] | None, slots: int, compute: int) -> None:
        """All passes as a ring runs them: every slot is filled ahead, and again once compute is through with it.

        ``ahead`` queues a layer by its number, not before an event; nothing is moved if it is None.
        """
        free: list[Event] = [self.accelerator.record()] * slots
        here: list[Event] = []
        for index in range(self.count + slots - 1):
            if ahead is not None and index < self.count:
                here.append(ahead(index, free[index % slots]))
            if index >= slots - 1:
                if ahead is not None:
                    self.accelerator.wait(here.pop(0))
                self.compute(compute)
                free[(index - slots + 1) % slots] = self.accelerator.record()

    def everybodys(self, number: int) -> int:
        """Rank 0's number, so that all ranks do the same."""
        return int(self.seat.circle.meet("number", number)[0].value)

    def unit_seconds(self) -> float:
        """Of one unit of compute."""
        return self.seconds(lambda: self.compute(20)) / 20

    def are_layers(self, slots: list[torch.Tensor]) -> bool:
        """Whether the slots have the last layers of the last pass, to the byte."""
        last = range(self.count - len(slots), self.count)
        return all(self.is_layer(slots[index % len(slots)], index % self.layers) for index in last)

    def is_layer(self, buffer: torch.Tensor, layer: int) -> bool:
        """Whether a device buffer has exactly the bytes of a layer."""
        self.accelerator.synchronize()
        expected = torch.empty(self.nbytes, dtype=torch.uint8)
        Pattern(layer, self.nbytes).read(0, expected)
        return torch.equal(buffer.cpu(), expected)


def timed(work: Callable[[], object]) -> float:
    """Seconds on the host's clock."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
