"""One copy that goes through the staging ring: what is left of it, and the event of its end once there is one.

The host queues such a copy long before the last of it is on the copy stream, so there is no CUDA event to return yet:
this object stands for it. Everything but `end` and `resolve` belongs to the ring and is guarded by the ring's lock.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import torch

from stowplan_agent.accelerators.interface import ByteSource, Event
from stowplan_agent.accelerators.staging_memory import Piece

_NOTHING: Final = torch.empty(0, dtype=torch.uint8)


class MemorySource:
    """A host tensor as a source: copied by the ring's threads, several pieces at once."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """``tensor`` is flat, contiguous and of dtype uint8; it is kept alive until the last byte is read."""
        self.nbytes = tensor.nbytes
        self._bytes = tensor.numpy()

    def read(self, start: int, target: torch.Tensor) -> None:
        """One memcpy; numpy lets other threads run meanwhile."""
        np.copyto(target.numpy(), self._bytes[start : start + target.nbytes])


class StagedCopy:
    """A queued copy. With a `ByteSource` it goes piece by piece; with ``straight`` only its turn is waited for."""

    __slots__ = (
        "_end", "_on_stream", "after", "begun", "blocking", "cancelled", "destination", "error", "filled", "in_turn",
        "nbytes", "next", "reading", "source", "storage", "straight",
    )  # fmt: skip

    def __init__(
        self,
        destination: torch.Tensor,
        source: ByteSource | None,
        *,
        after: Event | None,
        straight: torch.Tensor | None = None,
        blocking: bool = False,
        in_turn: bool = False,
    ) -> None:
        """Either ``source``, or ``straight``: a host tensor that is sent as a whole, by a ``blocking`` call or not.

        ``in_turn``: not before the copies that were queued before it, whatever buffers they go to.
        """
        self.destination = destination
        self.storage = destination.untyped_storage().data_ptr()
        self.nbytes = destination.nbytes
        self.source = source
        self.straight = straight
        self.blocking = blocking
        self.after = after
        self.in_turn = in_turn
        self.begun = False
        self.cancelled = False
        self.error: BaseException | None = None
        self.next = 0 if source is not None else self.nbytes  # the first byte that no thread has taken
        self.reading = 0  # pieces that threads read into now, or put on the stream
        self.filled: list[tuple[Piece, int, int]] = []  # pieces that are read but not on the stream: start, length
        self._end: Any = None
        self._on_stream = threading.Event()

    @property
    def over(self) -> bool:
        """Whether nothing more of it may reach the device."""
        return self.cancelled or self.error is not None

    def fail(self, error: BaseException) -> None:
        """The first error counts; bytes that no thread has taken are let be."""
        if self.error is None:
            self.error = error
        self.next = self.nbytes

    def cancel(self) -> None:
        """Nobody wants the bytes any more."""
        self.cancelled = True
        self.next = self.nbytes

    def finish(self, end: Event) -> None:
        """All of it is on the stream, or never will be. ``end`` is the event after it."""
        self._end = end
        # Whoever keeps the event does not keep the memory.
        self.destination, self.source, self.straight, self.after = _NOTHING, None, None, None
        self._on_stream.set()

    def end(self) -> Any:
        """The event of the end; the host waits until the last piece is on the stream.

        Raises only what the device raised when it refused even the event.
        """
        self._on_stream.wait()
        if self._end is None and self.error is not None:
            raise self.error
        return self._end

    def resolve(self) -> Any:
        """Like `end`, but raises what the copy raised: its bytes never came."""
        end = self.end()
        if self.error is None:
            return end
        try:
            raise self.error
        finally:
            del self  # the traceback keeps this frame, and the error is the copy's: together a cycle
