"""An NVIDIA GPU through torch: its caching allocator, one copy stream, CUDA events, and a staging ring.

Copies from pinned memory go straight to the copy stream; no host synchronisation, no allocator call. Copies from
pageable memory and fills from files go through the staging ring, whose threads put them on the stream: while one of
them is on its way, straight copies queue behind it in the order of issue. Nothing here synchronises but what says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from stowplan_agent.accelerators.choice import AcceleratorError
from stowplan_agent.accelerators.copy_stream import CudaCopyStream
from stowplan_agent.accelerators.cuda_memory import CudaMemory
from stowplan_agent.accelerators.cuda_registration import register, unregister
from stowplan_agent.accelerators.facts import cuda_facts
from stowplan_agent.accelerators.interface import Accelerator, ByteSource, MemoryCounters, check_length
from stowplan_agent.accelerators.staged_copy import MemorySource, StagedCopy
from stowplan_agent.accelerators.staging import Staging
from stowplan_agent.accelerators.staging_memory import RING_BYTES

CudaEvent = torch.cuda.Event | StagedCopy
"""A point of a stream, or the end of a copy that is not wholly on its stream yet."""


class CudaAccelerator(Accelerator):
    """One GPU of this process."""

    name = "cuda"
    staging_need_bytes = RING_BYTES

    def __init__(self, index: int = 0, *, ceiling_bytes: int | None = None) -> None:
        """Creates the context. Raises `AcceleratorError` where torch sees no such GPU."""
        if not torch.cuda.is_available():
            raise AcceleratorError("no NVIDIA GPU is visible to torch here; choose the emulated accelerator or add one")
        if index >= torch.cuda.device_count():
            raise AcceleratorError(f"there is no GPU {index}: torch sees {torch.cuda.device_count()} here; add one")
        self.device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(self.device)
        self.product = str(properties.name)
        # Before there is a context of ours, so that what is in use is in use by others.
        self.facts = cuda_facts(properties)
        torch.cuda.set_device(self.device)
        torch.cuda.synchronize(self.device)
        self.memory = CudaMemory(self.device, ceiling_bytes=ceiling_bytes)
        self._stream = CudaCopyStream(self.device)
        self._new_staging()

    def capacity_bytes(self) -> int:
        """The card's memory, or the ceiling."""
        return self.memory.capacity_bytes

    def outside_bytes(self) -> int:
        """Used on the device but not by this process's allocator: the context, and other processes."""
        return self.memory.outside_bytes()

    def allocate(self, nbytes: int) -> torch.Tensor:
        """A flat buffer of torch's allocator, on the compute stream."""
        buffer = self.memory.allocate(nbytes)
        # The allocator may hand out memory that queued compute still uses; copies into it must come after that.
        self._stream.stream.wait_stream(self._compute)
        return buffer

    def free(self, buffer: torch.Tensor) -> None:
        """Hand the memory back in stream order: copies not on the stream yet are let go, once reads for them end."""
        self._staging.cancel(buffer.untyped_storage().data_ptr())
        self._compute.wait_stream(self._stream.stream)
        self.memory.free(buffer)

    def hold(self, nbytes: int) -> None:
        """The allocator itself has the memory, or will refuse it."""
        self.memory.hold(nbytes)

    def let_go(self, nbytes: int) -> None:
        """Counted as activations from here on, for as long as it is there."""
        self.memory.hold(-nbytes)

    def copy(
        self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: CudaEvent | None
    ) -> CudaEvent:
        """Queue a copy; the host goes on. Where no memory can be locked, a pageable copy is the driver's and blocks."""
        check_length(destination, source)
        in_turn, after = isinstance(after, StagedCopy), _on_compute(after)
        straight = pinned or not self._staging.open()
        if not straight:
            return self._staging.queue(StagedCopy(destination, MemorySource(source), after=after, in_turn=in_turn))
        if self._staging.busy or self._staging.closed:
            turn = StagedCopy(destination, None, after=after, straight=source, blocking=not pinned)
            return self._staging.queue(turn)
        with self._stream.current():
            if after is not None:
                self._stream.wait(after)
            self._stream.send(destination, source, blocking=not pinned)
            return self._stream.record()

    def fill(self, destination: torch.Tensor, source: ByteSource, *, after: CudaEvent | None) -> CudaEvent:
        """Queue a fill for the staging ring; the host goes on."""
        check_length(destination, source)
        self._staging.open()
        in_turn = isinstance(after, StagedCopy)
        return self._staging.queue(StagedCopy(destination, source, after=_on_compute(after), in_turn=in_turn))

    def expect_fills(self) -> None:
        """Open the staging ring, on a thread."""
        self._staging.prepare()

    def read_back(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """A blocking copy to the host."""
        destination.copy_(source)

    def record(self) -> torch.cuda.Event:
        """A timed event on the compute stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._compute)
        return event

    def wait(self, event: CudaEvent) -> None:
        """Let the compute stream wait. The host goes on once the copy is wholly on its stream."""
        self._compute.wait_event(event.resolve() if isinstance(event, StagedCopy) else event)

    def synchronize(self) -> None:
        """Wait for the whole device, and before that for what the staging ring has to put on it."""
        self._staging.settle()
        torch.cuda.synchronize(self.device)

    def elapsed(self, start: CudaEvent, end: CudaEvent) -> float:
        """Seconds between two events; waits for the later one."""
        first, last = (event.end() if isinstance(event, StagedCopy) else event for event in (start, end))
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000.0

    def wait_seconds(self) -> float:
        """0: an event around each wait would have to be read back; calibration does that, serving does not."""
        return 0.0

    @property
    def staging_bytes(self) -> int:
        """What the staging ring has locked: nothing before its first use."""
        return self._staging.locked_bytes

    def pin(self, buffer: torch.Tensor) -> bool:
        """Register the host range with the driver; a refusal is not inherited by the next call."""
        return register(buffer, self.device)

    def unpin(self, buffer: torch.Tensor) -> None:
        """Unregister the range, once no copy reads it. Copies from it that still wait for their turn become slow."""
        with self._staging.paused():
            self._stream.synchronize()
            unregister(buffer, self.device)

    def counters(self) -> MemoryCounters:
        """Counters of torch's allocator, weights kept apart."""
        return self.memory.counters()

    def reset_peaks(self) -> None:
        """Start the peaks from what is held now."""
        self.memory.reset_peaks()

    def empty_cache(self) -> None:
        """Return unused blocks to the driver. Buffers that copies are on their way to are in use."""
        torch.cuda.empty_cache()

    def trim(self) -> None:
        """Unlock and drop the staging ring once it is done; a new one opens at its first use."""
        if not self._staging.closed:
            self._staging.settle()
            self._end()
            self._new_staging()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the thread's current device."""
        with torch.cuda.device(self.device):
            yield

    def close(self) -> None:
        """Fail what the staging ring has not sent, end its threads, unlock its memory."""
        self._end()

    def _new_staging(self) -> None:
        self._staging = Staging(
            self._stream, pin=partial(register, device=self.device), unpin=partial(unregister, device=self.device)
        )
        # Threads inside torch while the interpreter is taken down abort the process, so they end before that.
        self._end = weakref.finalize(self, self._staging.close)

    @property
    def _compute(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)


def _on_compute(after: CudaEvent | None) -> torch.cuda.Event | None:
    """What a copy must wait for: not for a staged one, which the order of the copy stream puts before it anyway."""
    return None if isinstance(after, StagedCopy) else after
