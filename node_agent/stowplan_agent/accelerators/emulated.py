"""A card that runs anywhere: CPU tensors under a capacity, a link of a stated rate, and counters that see activations.

What is real: the engine above, the pipelines, the bytes, the asynchrony (copies happen on a thread of their own, after
the event they wait for), and the accounting, which sees every tensor an operation makes. What is not:

- Host and device share one memory, so a tensor on the wrong side is not noticed.
- Compute is synchronous with the host: an event of the compute stream has happened when it is recorded.
- Seconds are computed (`virtual_clock`): operations cost max(floating-point operations / rate, bytes / memory rate).
- Workspaces inside one operation, and fragmentation, do not exist; reserved equals allocated.

Weight buffers are filled with 0xFF (not a number, in every float format) before their first and after their last use,
so that reading a weight too early or too late shows in the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from stowplan_agent.accelerators.copy_thread import CopyThread, EmulatedEvent
from stowplan_agent.accelerators.emulated_card import EmulatedCard
from stowplan_agent.accelerators.emulated_memory import EmulatedMemory
from stowplan_agent.accelerators.interface import Accelerator, ByteSource, MemoryCounters, check_length
from stowplan_agent.accelerators.observed_operations import ObservedOperations
from stowplan_agent.accelerators.virtual_clock import VirtualClock
from stowplan_api.quantity import for_people

__all__ = ["POISON", "EmulatedAccelerator", "EmulatedCard", "EmulatedEvent"]

POISON: Final = 0xFF


class EmulatedAccelerator(Accelerator):
    """See the module. ``delay`` is called on the copy thread before each copy: tests inject slow copies there."""

    name = "emulated"
    device = torch.device("cpu")

    def __init__(self, card: EmulatedCard, *, delay: Callable[[], None] | None = None) -> None:
        """Starts the copy thread; `close` stops it."""
        self.card = card
        self.product = f"Emulated {for_people(card.capacity_bytes)}"
        self.clock = VirtualClock(card.contention)
        self.refused_pins = False
        """Set by tests: the driver refuses every further `pin`."""
        self._delay = delay
        self._memory = EmulatedMemory(card.capacity_bytes, card.outside_bytes, self.product)
        self._link = CopyThread()

    def capacity_bytes(self) -> int:
        """The stated capacity."""
        return self.card.capacity_bytes

    def outside_bytes(self) -> int:
        """The stated size of a context."""
        return self.card.outside_bytes

    def allocate(self, nbytes: int) -> torch.Tensor:
        """A flat buffer, charged against the capacity."""
        self._memory.take_weights(nbytes)
        # A weight buffer is no activation; and one made in inference mode could not be written outside it.
        with _disable_current_modes(), torch.inference_mode(False):
            return torch.full((nbytes,), POISON, dtype=torch.uint8, device="cpu")

    def free(self, buffer: torch.Tensor) -> None:
        """Uncharge a buffer, and spoil it once what is queued for it is done."""
        self._memory.give_back_weights(buffer.nbytes)
        self._link.queue(partial(buffer.fill_, POISON))

    def hold(self, nbytes: int) -> None:
        """Charged like a buffer."""
        self._memory.take_weights(nbytes)

    def let_go(self, nbytes: int) -> None:
        """Uncharged: the host's memory was used all along."""
        self._memory.give_back_weights(nbytes)

    def copy(
        self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: EmulatedEvent | None
    ) -> EmulatedEvent:
        """Queue a copy for the copy thread, and its time on the clock."""
        check_length(destination, source)
        rate = self.card.pinned_rate if pinned else self.card.pageable_rate
        return self._queue(partial(destination.copy_, source), destination.nbytes, rate, after)

    def fill(self, destination: torch.Tensor, source: ByteSource, *, after: EmulatedEvent | None) -> EmulatedEvent:
        """Read the source straight into the destination on the copy thread, at the pageable rate."""
        check_length(destination, source)
        return self._queue(partial(source.read, 0, destination), destination.nbytes, self.card.pageable_rate, after)

    def expect_fills(self) -> None:
        """They need nothing."""

    def _queue(
        self, work: Callable[[], object], nbytes: int, rate: float, after: EmulatedEvent | None
    ) -> EmulatedEvent:
        if not self._link.is_open:
            raise RuntimeError(f"{self.product} is closed: nothing can be copied any more")
        # Not into the past of a device that stands idle: without an event a copy starts at compute's now.
        not_before = self.clock.compute if after is None else after.moment
        end = self.clock.copy(self.card.latency + nbytes / rate, not_before)
        return self._link.queue(partial(self._move, work), end)

    def read_back(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """Copy at the pageable rate, compute standing still: a link is busy in one direction, and this is the other."""
        check_length(destination, source)
        self.clock.wait(self.clock.compute + self.card.latency + destination.nbytes / self.card.pageable_rate)
        with _disable_current_modes(), torch.inference_mode():
            self._move(partial(destination.copy_, source))

    def record(self) -> EmulatedEvent:
        """Compute's now."""
        return EmulatedEvent(self.clock.compute)

    def wait(self, event: EmulatedEvent) -> None:
        """Wait for the copy thread in truth, and on the clock. Raises what the copy raised, if it failed."""
        self.clock.wait(event.moment)
        if event.done is not None:
            event.done.wait()
        if event.errors:
            raise event.errors[0]

    def synchronize(self) -> None:
        """Wait until the copy thread has nothing left to do; a closed accelerator has nothing."""
        self._link.drain()
        self.clock.settle()

    def elapsed(self, start: EmulatedEvent, end: EmulatedEvent) -> float:
        """Seconds of the virtual clock."""
        return end.moment - start.moment

    def wait_seconds(self) -> float:
        """From the virtual clock."""
        return self.clock.waited

    @property
    def staging_bytes(self) -> int:
        """0: host and device share one memory."""
        return 0

    def pin(self, buffer: torch.Tensor) -> bool:
        """Pinning is the caller's ledger entry here: nothing is locked."""
        return not self.refused_pins

    def unpin(self, buffer: torch.Tensor) -> None:
        """Nothing was locked."""

    def counters(self) -> MemoryCounters:
        """Charged bytes and their peaks; reserved equals allocated."""
        return self._memory.counters()

    def reset_peaks(self) -> None:
        """Start the peaks from what is held now."""
        self._memory.reset_peaks()

    def empty_cache(self) -> None:
        """There is no cache."""

    def trim(self) -> None:
        """There is nothing to give back; copies on their way arrive, as they do before staging memory can go."""
        self._link.drain()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch every operation of this thread: charge what it makes, advance the clock by what it costs."""
        with ObservedOperations(self._operation):
            yield

    def close(self) -> None:
        """Stop the copy thread after what is queued."""
        self._link.close()

    def _move(self, work: Callable[[], object]) -> None:
        if self._delay is not None:
            self._delay()
        work()

    def _operation(self, flops: int, nbytes: int, made: list[torch.UntypedStorage]) -> None:
        self.clock.advance(max(flops / self.card.flops, nbytes / self.card.memory_rate))
        for storage in made:
            self._memory.take_activation(storage)
