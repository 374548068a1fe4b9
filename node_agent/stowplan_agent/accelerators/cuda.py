"""An NVIDIA GPU through torch: its caching allocator, one copy stream, CUDA events.

Peaks: the allocator counts weights and activations together, so each time weights are taken or given back the peak of
the stretch that ends is folded into this class's own counters, less the weights held during it. That is host-side
bookkeeping only; nothing here synchronises but what says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from stowplan_agent.accelerators.choice import AcceleratorError
from stowplan_agent.accelerators.interface import Accelerator, ByteSource, MemoryCounters, check_length

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for every context of the process
_SUCCESS = 0


class CudaAccelerator(Accelerator):
    """One GPU of this process."""

    name = "cuda"

    def __init__(self, index: int = 0, *, ceiling_bytes: int | None = None) -> None:
        """Creates the context. Raises `AcceleratorError` where torch sees no GPU."""
        if not torch.cuda.is_available():
            raise AcceleratorError("no NVIDIA GPU is visible to torch here; choose the emulated accelerator or add one")
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self.product = str(properties.name)
        self._capacity = min(properties.total_memory, ceiling_bytes or properties.total_memory)
        self._stream = torch.cuda.Stream(self.device)
        self._weights = 0
        self._held = 0  # what the allocator took for the weights: it rounds up
        self._peak = 0
        self._activation_peak = 0
        self._reserved_peak = 0
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        if self._capacity < properties.total_memory:
            # The ceiling is for the whole process, so what lies outside the allocator comes off the allocator's share.
            share = max(0, self._capacity - self.outside_bytes()) / properties.total_memory
            torch.cuda.set_per_process_memory_fraction(share, self.device)

    def capacity_bytes(self) -> int:
        """The card's memory, or the ceiling."""
        return self._capacity

    def outside_bytes(self) -> int:
        """Used on the device but not by this process's allocator: the context, and other processes."""
        free, total = torch.cuda.mem_get_info(self.device)
        return max(0, total - free - torch.cuda.memory_reserved(self.device))

    def allocate(self, nbytes: int) -> torch.Tensor:
        """A flat buffer of torch's allocator, on the compute stream."""
        self._fold()
        before = torch.cuda.memory_allocated(self.device)
        buffer = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        self._held += torch.cuda.memory_allocated(self.device) - before
        self._weights += nbytes
        torch.cuda.reset_peak_memory_stats(self.device)
        # The allocator may hand out memory that queued compute still uses; copies into it must come after that.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        return buffer

    def free(self, buffer: torch.Tensor) -> None:
        """Hand the memory back to the allocator now, in stream order, once the copy stream is past it.

        The tensor is empty afterwards: a reference that someone keeps would otherwise keep the memory, uncounted.
        """
        self._fold()
        nbytes = buffer.nbytes
        torch.cuda.current_stream(self.device).wait_stream(self._stream)
        before = torch.cuda.memory_allocated(self.device)
        buffer.untyped_storage().resize_(0)
        self._held -= before - torch.cuda.memory_allocated(self.device)
        self._weights -= nbytes
        torch.cuda.reset_peak_memory_stats(self.device)

    def copy(
        self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: torch.cuda.Event | None
    ) -> torch.cuda.Event:
        """Queue a copy on the copy stream; a pageable one blocks the host, as the driver does."""
        with torch.cuda.stream(self._stream):
            if after is not None:
                self._stream.wait_event(after)
            destination.copy_(source, non_blocking=pinned)
            event = torch.cuda.Event(enable_timing=True)
            event.record(self._stream)
        return event

    def fill(
        self, destination: torch.Tensor, source: ByteSource, *, after: torch.cuda.Event | None
    ) -> torch.cuda.Event | BaseException:
        """Read everything, then copy it: blocks the host. An error takes the event's place until it is waited for."""
        check_length(destination, source)
        staged = torch.empty(source.nbytes, dtype=torch.uint8)
        try:
            source.read(0, staged)
        except BaseException as error:
            return error
        return self.copy(destination, staged, pinned=False, after=after)

    @property
    def staging_bytes(self) -> int:
        """Nothing is locked."""
        return 0

    def read_back(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """A blocking copy to the host."""
        destination.copy_(source)

    def record(self) -> torch.cuda.Event:
        """A timed event on the compute stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait(self, event: torch.cuda.Event | BaseException) -> None:
        """Let the compute stream wait; the host goes on."""
        if isinstance(event, BaseException):
            raise event
        torch.cuda.current_stream(self.device).wait_event(event)

    def synchronize(self) -> None:
        """Wait for the whole device."""
        torch.cuda.synchronize(self.device)

    def elapsed(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Seconds between two events; waits for the later one."""
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000.0

    def wait_seconds(self) -> float:
        """0: an event around each wait would have to be read back; calibration does that, serving does not."""
        return 0.0

    def pin(self, buffer: torch.Tensor) -> bool:
        """Register the host range with the driver; its error is read so that the next call does not inherit it."""
        runtime = torch.cuda.cudart()
        try:
            status = int(runtime.cudaHostRegister(buffer.data_ptr(), buffer.nbytes, _PORTABLE))
        except RuntimeError:
            status = -1
        if status != _SUCCESS:
            self._clear_error()
            return False
        return True

    def unpin(self, buffer: torch.Tensor) -> None:
        """Unregister the range, once no copy reads it."""
        self._stream.synchronize()
        if int(torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr())) != _SUCCESS:
            self._clear_error()

    def counters(self) -> MemoryCounters:
        """Counters of torch's allocator, weights kept apart."""
        self._fold()
        return MemoryCounters(
            allocated=torch.cuda.memory_allocated(self.device),
            weights=self._weights,
            peak=self._peak,
            activation_peak=self._activation_peak,
            reserved_peak=self._reserved_peak,
        )

    def reset_peaks(self) -> None:
        """Start the peaks from what is held now."""
        torch.cuda.reset_peak_memory_stats(self.device)
        self._peak = self._activation_peak = self._reserved_peak = 0
        self._fold()

    def empty_cache(self) -> None:
        """Return unused blocks to the driver."""
        torch.cuda.empty_cache()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the thread's current device."""
        with torch.cuda.device(self.device):
            yield

    def close(self) -> None:
        """Nothing was started that outlives the process."""

    def _fold(self) -> None:
        most = torch.cuda.max_memory_allocated(self.device)
        self._peak = max(self._peak, most)
        self._activation_peak = max(self._activation_peak, most - self._held)
        self._reserved_peak = max(self._reserved_peak, torch.cuda.max_memory_reserved(self.device))

    def _clear_error(self) -> None:
        # torch does not bind cudaGetLastError. It calls it after each kernel launch, though, and so takes the blame of
        # the driver call that failed; streams and synchronisation only return errors of their own.
        with suppress(RuntimeError):
            torch.ones(1, device=self.device)
