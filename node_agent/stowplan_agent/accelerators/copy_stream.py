"""The stream on which weights move, as the staging ring sees it; and the real one, of a GPU.

A stream runs what it was given in order, by itself. The ring knows this small surface and no CUDA, so that its order,
its errors and its shutdown are tested on any machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from stowplan_agent.accelerators.interface import Event


class Fence(Protocol):
    """A mark on the stream that can be moved to its end, again and again, and that the host can wait for."""

    def synchronize(self) -> None:
        """Wait on the host for what lay before the mark; at once if it was never set."""


class CopyStream(Protocol):
    """What is asked of a stream. All but `send` and `set_fence` is called from one thread at a time."""

    def current(self) -> AbstractContextManager[Any]:
        """Make this stream the calling thread's own: `send` is called within."""

    def wait(self, event: Event) -> None:
        """Let the stream wait for an event."""

    def has_passed(self, event: Event) -> bool:
        """Whether an event that `wait` would wait for has happened. The host does not wait."""

    def send(self, destination: torch.Tensor, source: torch.Tensor, *, blocking: bool) -> None:
        """Queue one copy from the host; ``blocking`` for memory that is not pinned."""

    def record(self) -> Event:
        """A new event at the present end of the stream."""

    def fence(self) -> Fence:
        """A new fence, not yet set."""

    def set_fence(self, fence: Fence) -> None:
        """Move a fence to the present end of the stream."""

    def synchronize(self) -> None:
        """Wait on the host for all that is on the stream."""


class CudaCopyStream:
    """A side stream of one GPU. Events are timed; fences put the waiting thread to sleep rather than spin."""

    def __init__(self, device: torch.device) -> None:
        """Creates the stream."""
        self.stream = torch.cuda.Stream(device)

    def current(self) -> AbstractContextManager[Any]:
        """Also makes the GPU the thread's current device."""
        return torch.cuda.stream(self.stream)

    def wait(self, event: torch.cuda.Event) -> None:
        """Queued; the host goes on."""
        self.stream.wait_event(event)

    def has_passed(self, event: torch.cuda.Event) -> bool:
        """One cudaEventQuery."""
        return bool(event.query())

    def send(self, destination: torch.Tensor, source: torch.Tensor, *, blocking: bool) -> None:
        """One cudaMemcpyAsync; a blocking one waits for its end, as the driver reads pageable memory."""
        destination.copy_(source, non_blocking=not blocking)

    def record(self) -> torch.cuda.Event:
        """A timed event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def fence(self) -> torch.cuda.Event:
        """An event without timing: cheaper, and re-used."""
        return torch.cuda.Event(blocking=True)

    def set_fence(self, fence: Fence) -> None:
        """Re-record the event."""
        assert isinstance(fence, torch.cuda.Event)
        fence.record(self.stream)

    def synchronize(self) -> None:
        """Other streams go on."""
        self.stream.synchronize()
