"""Host memory of exact size.

An anonymous mapping is exactly as large as asked (to the page), is given back to the kernel the moment it is dropped,
and can be registered with the driver. torch's own pinned allocator rounds up to powers of two and never gives back
(https://github.com/pytorch/pytorch/issues/35901 is its device twin).
"""

from __future__ import annotations

import mmap

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.ledger import Ledger, Tier


class HostBuffer:
    """One unit's host copy. Pinned or pageable, and the ledger always knows which it really is."""

    def __init__(self, owner: str, nbytes: int, accelerator: Accelerator, ledger: Ledger) -> None:
        """Pageable memory, not yet touched. ``nbytes`` must be above 0."""
        self.tensor = torch.frombuffer(mmap.mmap(-1, nbytes), dtype=torch.uint8)
        self.pinned = False
        self._owner = owner
        self._nbytes = nbytes
        self._accelerator = accelerator
        self._ledger = ledger
        ledger.take(owner, Tier.PAGEABLE, nbytes)

    def set_pinned(self, wanted: bool) -> None:
        """Lock or unlock the buffer. Where the driver refuses, it stays pageable and copies are slower, not wrong."""
        if wanted == self.pinned:
            return
        if wanted:
            if not self._accelerator.pin(self.tensor):
                return
        else:
            self._accelerator.unpin(self.tensor)
        self._ledger.give_back(self._owner, self._tier(), self._nbytes)
        self.pinned = wanted
        self._ledger.take(self._owner, self._tier(), self._nbytes)

    def drop(self) -> None:
        """Unlock the buffer and forget it; the pages go when the last view of them does."""
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self._nbytes)
        self.tensor = torch.empty(0, dtype=torch.uint8)

    def _tier(self) -> Tier:
        return Tier.PINNED if self.pinned else Tier.PAGEABLE
