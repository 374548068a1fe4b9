"""Memory of one GPU through torch's caching allocator: weights apart from activations, and a ceiling that holds.

The allocator counts weights and activations together, so each time weights are taken or given back the peak of the
stretch that ends is folded into this class's own counters, less the weights held during it. That is host-side
bookkeeping only; nothing here synchronises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

import torch

from stowplan_agent.accelerators.interface import MemoryCounters

ALLOCATOR_VARIABLES: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Where torch reads its allocator's settings from (torch notes, "CUDA semantics", "Optimizing memory usage")."""

OWN_GROWTH: Final = 256 << 20
"""Bytes that libraries may take outside the allocator after the start; half of the least reserve, so that no plan lacks
them. What lies outside beyond that is another process's, and a ceiling on this one does not shrink for it."""


def without_fragments(environment: Mapping[str, str] = os.environ) -> str | None:
    """The settings with which torch's allocator maps memory as it needs it; None where the user has decided.

    Segments of fixed size fall to pieces as weights come and go between activations of other sizes: on an H200 capped
    to 24, 32 and 48 GiB, plans that fit ran out of memory with 2.7 GiB reserved and unused. Other settings are kept,
    for torch takes each string as a whole.
    """
    given = next((environment[name] for name in ALLOCATOR_VARIABLES if environment.get(name)), "")
    if "expandable_segments" in given or "backend" in given:
        return None
    return ",".join(filter(None, (given, "expandable_segments:True")))


def ceiling_share(total: int, ceiling: int, outside: int) -> float:
    """The share of a card that torch's allocator may take so that this process stays under a ceiling, all in bytes.

    What lies outside the allocator comes off the ceiling, and off the card where the ceiling would lift it: 24 GiB of
    which another process holds 2 leave 22, whatever the ceiling says.
    """
    return max(0, min(total, ceiling) - outside) / total


class _Counts(NamedTuple):
    """What torch's allocator says, in bytes; peaks since they were last reset."""

    allocated: int
    peak: int
    reserved_peak: int


class CudaMemory:
    """What this process holds on the device."""

    def __init__(self, device: torch.device, *, ceiling_bytes: int | None) -> None:
        """Starts the counters, and caps torch's allocator where there is a ceiling."""
        self._device = device
        if (settings := without_fragments()) is not None:
            torch._C._accelerator_setAllocatorSettings(settings)
        self._total = int(torch.cuda.get_device_properties(device).total_memory)
        self._ceiling = ceiling_bytes
        self.capacity_bytes = min(self._total, ceiling_bytes or self._total)
        self._weights = 0
        self._held = 0  # what the allocator took for the weights: it rounds up
        self._apart = 0  # weights in memory that the driver gave beside the allocator
        self._peak = 0
        self._activation_peak = 0
        self._reserved_peak = 0
        torch.cuda.reset_peak_memory_stats(device)
        self._outside_at_start = self.outside_bytes()
        self._hold_ceiling()

    def outside_bytes(self) -> int:
        """Used on the device but not by this process's allocator: the context, and other processes."""
        free, total = torch.cuda.mem_get_info(self._device)
        return max(0, total - free - torch.cuda.memory_reserved(self._device) - self._apart)

    def allocate(self, nbytes: int) -> torch.Tensor:
        """A flat buffer, on the compute stream. Raises torch.OutOfMemoryError, with nothing changed."""
        before = self._fold()
        with torch.inference_mode(False):  # or nobody outside that mode could write into it
            buffer = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        self._held += self._counts().allocated - before
        self._weights += nbytes
        torch.cuda.reset_peak_memory_stats(self._device)
        return buffer

    def hold(self, nbytes: int) -> None:
        """Count bytes of the allocator's as weights, or, below 0, no more."""
        self._fold()
        self._weights += nbytes
        self._held += nbytes
        torch.cuda.reset_peak_memory_stats(self._device)

    def check_apart(self, taken: int) -> None:
        """Raises torch.OutOfMemoryError where the ceiling has no room for so many bytes of the driver's own."""
        if self._ceiling:
            room = self._ceiling - self._outside() - self._apart - torch.cuda.memory_reserved(self._device)
            if taken > room:
                raise torch.OutOfMemoryError(
                    f"{taken} bytes for the peers' access are more than the {max(0, room)} that are left of the "
                    f"ceiling of {self._ceiling} bytes"
                )

    def hold_apart(self, nbytes: int, taken: int) -> None:
        """Count as weights ``nbytes`` for which the driver itself has given ``taken``; below 0, has got them back.

        They are under the ceiling like any: the allocator's part of it shrinks by what is taken.
        """
        self._fold()
        self._weights += nbytes
        self._apart += taken
        torch.cuda.reset_peak_memory_stats(self._device)
        self._hold_ceiling()

    def free(self, buffer: torch.Tensor) -> None:
        """Hand a buffer's memory back to the allocator now, in order of the compute stream.

        The tensor is empty afterwards: a reference that someone keeps would otherwise keep the memory, uncounted.
        """
        before = self._fold()
        nbytes = buffer.nbytes
        buffer.untyped_storage().resize_(0)
        self._held -= before - self._counts().allocated
        self._weights -= nbytes
        torch.cuda.reset_peak_memory_stats(self._device)

    def counters(self) -> MemoryCounters:
        """Counters of torch's allocator, weights kept apart."""
        allocated = self._fold()
        return MemoryCounters(
            allocated=allocated + self._apart,
            weights=self._weights,
            peak=self._peak,
            activation_peak=self._activation_peak,
            reserved_peak=self._reserved_peak,
        )

    def reset_peaks(self) -> None:
        """Start the peaks from what is held now, under a ceiling that counts what lies outside the allocator now."""
        self._hold_ceiling()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._peak = self._activation_peak = self._reserved_peak = 0
        self._fold()

    def _hold_ceiling(self) -> None:
        # Each time, for libraries take kernels and workspaces outside the allocator at first use.
        if self._ceiling:
            share = ceiling_share(self._total, self._ceiling, self._outside() + self._apart)
            torch.cuda.set_per_process_memory_fraction(share, self._device)

    def _outside(self) -> int:
        """What a ceiling counts of it."""
        return min(self.outside_bytes(), self._outside_at_start + OWN_GROWTH)

    def _fold(self) -> int:
        """Take over the peaks of the stretch that ends; returns what is allocated now."""
        counts = self._counts()
        self._peak = max(self._peak, counts.peak + self._apart)
        self._activation_peak = max(self._activation_peak, counts.peak - self._held)
        self._reserved_peak = max(self._reserved_peak, counts.reserved_peak + self._apart)
        return counts.allocated

    def _counts(self) -> _Counts:
        # Not torch.cuda.memory_allocated and its like: each flattens and sorts a hundred counters to give one of them,
        # 0.05 ms of Python, four times an allocation.
        found = torch.cuda.memory_stats_as_nested_dict(self._device)
        taken = found["allocated_bytes"]["all"]
        return _Counts(taken["current"], taken["peak"], found["reserved_bytes"]["all"]["peak"])
