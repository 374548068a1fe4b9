"""Host memory of exact size.

An anonymous mapping is exactly as large as asked (to the page), is given back to the kernel the moment it is dropped,
and can be registered with the driver. torch's own pinned allocator rounds up to powers of two and never gives back
(https://github.com/pytorch/pytorch/issues/35901 is its device twin).
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from typing import Any, Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.ledger import Ledger, Tier

HUGE_PAGE: Final = 2 << 20
"""Bytes of a huge page on x86-64 and arm64 with 4 KiB base pages."""


class HostBuffer:
    """One unit's host copy. Pinned or pageable, and the ledger always knows which it really is."""

    def __init__(self, owner: str, nbytes: int, accelerator: Accelerator, ledger: Ledger) -> None:
        """Pageable memory, not yet touched. ``nbytes`` must be above 0. Raises OSError where the kernel has none."""
        pages = mmap.mmap(-1, nbytes)
        if nbytes >= HUGE_PAGE:
            # Fewer pages to fault in and to register with the driver; only a hint, and refused without harm.
            with contextlib.suppress(OSError):
                pages.madvise(mmap.MADV_HUGEPAGE)
        self.tensor = torch.frombuffer(pages, dtype=torch.uint8)
        self._owner = owner
        self._nbytes = nbytes
        self._accelerator = accelerator
        self._ledger = ledger
        self._unlock: weakref.finalize[Any, HostBuffer] | None = None
        ledger.take(owner, Tier.PAGEABLE, nbytes)

    @property
    def pinned(self) -> bool:
        """Whether the driver has locked the buffer."""
        return self._unlock is not None

    def set_pinned(self, wanted: bool) -> None:
        """Lock or unlock the buffer. Where the driver refuses, it stays pageable and copies are slower, not wrong."""
        if wanted and self._unlock is None:
            if not self._accelerator.pin(self.tensor):
                return
            # Memory that is unmapped while the driver has it registered cannot be registered again by its next owner.
            self._unlock = weakref.finalize(self, self._accelerator.unpin, self.tensor)
            self._unlock.atexit = False
            self._move(Tier.PAGEABLE, Tier.PINNED)
        elif not wanted and self._unlock is not None:
            unlock, self._unlock = self._unlock, None
            unlock()
            self._move(Tier.PINNED, Tier.PAGEABLE)

    def drop(self) -> None:
        """Unlock the buffer and forget it; the pages go when the last view of them does."""
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self._nbytes)
        self.tensor = torch.empty(0, dtype=torch.uint8)

    def _move(self, before: Tier, after: Tier) -> None:
        self._ledger.give_back(self._owner, before, self._nbytes)
        self._ledger.take(self._owner, after, self._nbytes)
