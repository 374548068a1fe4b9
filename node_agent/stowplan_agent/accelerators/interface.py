"""What the weights engine needs of a device, and nothing else.

Two streams: compute, on which the pipeline's operations run, and copy, which moves weights from the host in the order
they were issued. An event marks a point of a stream; `copy` may wait for one, compute `wait`s for one, and neither
blocks the host where the device allows it. Bytes come from a host tensor (`copy`) or from a `ByteSource`, such as a
file, that has no place of its own in host memory (`fill`). Weight buffers are taken through `allocate` and given back
through `free`, so that peaks of activations can be told apart from weights whatever the placement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from stowplan_agent.accelerators.facts import DeviceFacts

Event = Any
"""A point of a stream; opaque to everything but the accelerator that made it."""


class ByteSource(Protocol):
    """Bytes that can be read piece by piece: a file, several files laid end to end, a computation."""

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        ...

    def read(self, start: int, target: torch.Tensor) -> None:
        """Write bytes ``start`` to ``start + target.nbytes`` into a flat uint8 host tensor.

        Called from several threads at once, in no stated order, each byte once. What it raises reaches whoever waits
        for the fill.
        """
        ...


@dataclass(frozen=True)
class MemoryCounters:
    """Device memory of this process, in bytes, since the last `Accelerator.reset_peaks`."""

    allocated: int
    """Held now, weights included."""
    weights: int
    """Held now through `Accelerator.allocate`."""
    peak: int
    """The most held at once."""
    activation_peak: int
    """The most held at once, less the weights held at that moment."""
    reserved_peak: int
    """The most that the allocator took from the device."""


class Accelerator(ABC):
    """One device. Not thread-safe: one thread runs the pipeline, as one device does."""

    name: str
    """``cuda`` or ``emulated``."""
    device: torch.device
    """Where the pipeline's tensors live."""
    product: str
    """The card's name, for people."""
    facts: DeviceFacts | None = None
    """What the driver said of the card when the accelerator was opened; None where it says nothing."""
    staging_need_bytes: int = 0
    """Host memory that it takes, beside the host copies, for bytes on their way from pageable memory or files: from the
    first such byte on until `trim`."""

    @abstractmethod
    def capacity_bytes(self) -> int:
        """What this process may use: the card, or the ceiling that the user set if that is less."""

    @abstractmethod
    def outside_bytes(self) -> int:
        """Bytes in use outside this process's allocator: context, workspaces, other processes."""

    @abstractmethod
    def allocate(self, nbytes: int) -> torch.Tensor:
        """A flat uint8 buffer for weights. Raises torch.OutOfMemoryError."""

    @abstractmethod
    def free(self, buffer: torch.Tensor) -> None:
        """Give a buffer of `allocate` back. What is queued on either stream may still read it."""

    @abstractmethod
    def hold(self, nbytes: int) -> None:
        """Count as weights what a pipeline puts on the device by itself. Raises torch.OutOfMemoryError, uncounted."""

    @abstractmethod
    def let_go(self, nbytes: int) -> None:
        """Undo `hold`."""

    @abstractmethod
    def copy(self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: Event | None) -> Event:
        """Queue one copy from the host on the copy stream, not before ``after``; returns the event of its end.

        Both are flat uint8 tensors; raises ValueError where their lengths differ. Copies and fills keep the order in
        which they were queued. The source must keep its bytes until the copy is over. The host does not block where
        the device allows it.
        """

    @abstractmethod
    def fill(self, destination: torch.Tensor, source: ByteSource, *, after: Event | None) -> Event:
        """Queue all bytes of a source, in turn with the copies, not before ``after``; returns the event of their end.

        ``destination`` is a flat uint8 device tensor of ``source.nbytes`` bytes; raises ValueError for another length.
        The host does not block. What `ByteSource.read` raises is raised by `wait` for the event; the bytes of the
        destination are then undefined.
        """

    @abstractmethod
    def expect_fills(self) -> None:
        """Fills come soon: what they need is taken meanwhile. A hint; whatever fails here fails again in `fill`."""

    @abstractmethod
    def read_back(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """Copy device bytes to the host and wait for them: off the hot path only."""

    @abstractmethod
    def record(self) -> Event:
        """An event at the present end of the compute stream."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Let compute wait for an event. Raises what the copy or fill raised, if it failed."""

    @abstractmethod
    def synchronize(self) -> None:
        """Let the host wait for both streams: never on the hot path."""

    @abstractmethod
    def elapsed(self, start: Event, end: Event) -> float:
        """Seconds of the device between two events that have happened."""

    @abstractmethod
    def wait_seconds(self) -> float:
        """Seconds so far that compute stood still for copies; 0 where the device cannot tell without being asked."""

    @property
    @abstractmethod
    def staging_bytes(self) -> int:
        """What the accelerator itself has locked now of `staging_need_bytes`."""

    @abstractmethod
    def pin(self, buffer: torch.Tensor) -> bool:
        """Lock a host buffer for fast copies. False, with nothing changed, where the driver refuses."""

    @abstractmethod
    def unpin(self, buffer: torch.Tensor) -> None:
        """Undo `pin`."""

    @abstractmethod
    def counters(self) -> MemoryCounters:
        """Memory now, and its peaks. Host-side only: no synchronisation."""

    @abstractmethod
    def reset_peaks(self) -> None:
        """Start the peaks of `counters` anew from what is held now."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give memory that the allocator holds but nothing uses back to the device."""

    @abstractmethod
    def trim(self) -> None:
        """Give back host memory that only loading and pageable copies need: the next of them takes it again."""

    @abstractmethod
    def running(self) -> AbstractContextManager[None]:
        """Within it, operations of the calling thread are this device's."""

    @abstractmethod
    def close(self) -> None:
        """Stop what the accelerator started."""


def check_length(destination: torch.Tensor, source: ByteSource | torch.Tensor) -> None:
    """Raises ValueError where a source does not fill its destination exactly."""
    if destination.nbytes != source.nbytes:
        raise ValueError(f"a source of {source.nbytes} bytes cannot fill a buffer of {destination.nbytes}")
