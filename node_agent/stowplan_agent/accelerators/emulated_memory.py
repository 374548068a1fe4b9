"""The memory of an emulated card: an account of bytes under a capacity. No byte is anywhere but on the host."""

from __future__ import annotations

import sys
import weakref

import torch

from stowplan_agent.accelerators.interface import MemoryCounters
from stowplan_agent.accelerators.shortage import wording


class EmulatedMemory:
    """What a process holds of a card: weights apart from activations, and the peaks of both."""

    def __init__(self, capacity_bytes: int, outside_bytes: int, product: str) -> None:
        """``outside_bytes`` of the capacity are never to be had."""
        self._capacity, self._outside, self._product = capacity_bytes, outside_bytes, product
        self._weights = self._activations = self._peak = self._activation_peak = 0

    def take_weights(self, nbytes: int) -> None:
        """Charge weights. Raises torch.OutOfMemoryError, with nothing charged."""
        self._check(nbytes)
        self._weights += nbytes
        self._note_peaks()

    def give_back_weights(self, nbytes: int) -> None:
        """Uncharge weights."""
        self._weights -= nbytes

    def take_activation(self, storage: torch.UntypedStorage) -> None:
        """Charge a storage until it dies. Raises torch.OutOfMemoryError, with nothing charged."""
        nbytes = storage.nbytes()
        sys.audit("stowplan.activation", nbytes)
        self._check(nbytes)
        self._activations += nbytes
        weakref.finalize(storage, self._give_back_activation, nbytes)
        self._note_peaks()

    def counters(self) -> MemoryCounters:
        """Charged bytes and their peaks; reserved equals allocated."""
        held = self._weights + self._activations
        return MemoryCounters(held, self._weights, self._peak, self._activation_peak, self._peak)

    def reset_peaks(self) -> None:
        """Start the peaks from what is held now."""
        self._peak = self._weights + self._activations
        self._activation_peak = self._activations

    def _give_back_activation(self, nbytes: int) -> None:
        self._activations -= nbytes

    def _check(self, nbytes: int) -> None:
        room = self._capacity - self._outside - self._weights - self._activations
        if nbytes > room:
            raise torch.OutOfMemoryError(wording(nbytes, self._capacity, room, self._product))

    def _note_peaks(self) -> None:
        self._peak = max(self._peak, self._weights + self._activations)
        self._activation_peak = max(self._activation_peak, self._activations)
