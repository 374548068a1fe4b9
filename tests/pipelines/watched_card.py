"""An emulated card that notes what the engine asks of it: live weight buffers, copies in order, locked host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard


@dataclass(frozen=True)
class Copy:
    """One copy to the device: where to, bytes, whether from locked memory, and the moment that it waits for."""

    destination: int
    nbytes: int
    pinned: bool
    not_before: float


class WatchedCard(EmulatedAccelerator):
    """Addresses are those of the emulated device, which is host memory too; nothing that is noted is changed."""

    def __init__(self, **card: Any) -> None:
        """Fields of `EmulatedCard`, and ``delay`` and ``pin_limit`` (bytes that the driver locks at most)."""
        delay, self.pin_limit = card.pop("delay", None), card.pop("pin_limit", None)
        super().__init__(EmulatedCard(**({"capacity_bytes": 1 << 30} | card)), delay=delay)
        self.buffers: dict[int, int] = {}
        self.locked: dict[int, int] = {}
        self.unlocked: list[int] = []
        self.copies: list[Copy] = []

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in a buffer of weights that is on the device now."""
        address = tensor.untyped_storage().data_ptr()
        return any(start <= address < start + nbytes for start, nbytes in self.buffers.items())

    def allocate(self, nbytes: int) -> torch.Tensor:
        buffer = super().allocate(nbytes)
        self.buffers[buffer.data_ptr()] = nbytes
        return buffer

    def free(self, buffer: torch.Tensor) -> None:
        del self.buffers[buffer.data_ptr()]
        super().free(buffer)

    def copy(self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: Any) -> Any:
        not_before = self.clock.compute if after is None else after.moment
        self.copies.append(Copy(destination.data_ptr(), source.nbytes, pinned, not_before))
        return super().copy(destination, source, pinned=pinned, after=after)

    def pin(self, buffer: torch.Tensor) -> bool:
        if self.pin_limit is not None and sum(self.locked.values()) + buffer.nbytes > self.pin_limit:
            return False
        if not super().pin(buffer):
            return False
        assert buffer.data_ptr() not in self.locked, "locked twice"
        self.locked[buffer.data_ptr()] = buffer.nbytes
        return True

    def unpin(self, buffer: torch.Tensor) -> None:
        self.unlocked.append(self.locked.pop(buffer.data_ptr()))
        super().unpin(buffer)
