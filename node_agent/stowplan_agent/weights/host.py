"""Host memory of exact size: one arena for a component's host copies, given back to the kernel piece by piece.

An arena is a private anonymous mapping, exactly as large as asked (to the page), on huge pages where the kernel gives
them; a shared one, which is Python's default, gets none. It is carved into one buffer a unit, because a unit is what
the driver locks and what a commit gives back. torch's own pinned allocator rounds up to powers of two, pins at 2 GB/s
and gives nothing back. A buffer's pages go the moment the last view of it does, whatever lies beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.ledger import Ledger, Tier

HUGE_PAGE: Final = 2 << 20
"""Bytes of a huge page on x86-64 and arm64 with 4 KiB base pages."""

MADV_DOFORK: Final = 11  # linux/mman.h; Python has no method for a part of a mapping that it did not make
_libc = ctypes.CDLL(None)


def whole_pages(nbytes: int) -> int:
    """The next multiple of a page, which is what the kernel gives and the driver locks."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


class HostBuffer:
    """One unit's host copy. Pinned or pageable, and the ledger always knows which it really is."""

    def __init__(self, owner: str, memory: torch.Tensor, accelerator: Accelerator, ledger: Ledger) -> None:
        """Of `take_arena`."""
        self.tensor = memory
        self._owner = owner
        self._nbytes = memory.nbytes
        self._accelerator = accelerator
        self._ledger = ledger
        self._unlock: weakref.finalize[Any, HostBuffer] | None = None
        ledger.take(owner, Tier.PAGEABLE, self._nbytes)

    @property
    def pinned(self) -> bool:
        """Whether the driver has locked the buffer."""
        return self._unlock is not None

    @property
    def counted(self) -> torch.Tensor:
        """What the ledger has of it: all of it."""
        return self.tensor

    def copy_to(self, buffer: torch.Tensor, accelerator: Accelerator, after: Event | None) -> Event:
        """Queue a copy of all bytes into a device buffer of as many, not before ``after``."""
        return accelerator.copy(buffer, self.tensor, pinned=self.pinned, after=after)

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
            self._accelerator.unpin(self.tensor)  # first: what the driver will not unlock is locked, and said to be
            self._unlock.detach()
            self._unlock = None
            self._move(Tier.PINNED, Tier.PAGEABLE)

    def drop(self) -> None:
        """Unlock the buffer and forget it; the pages go when the last view of them does."""
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self._nbytes)
        self.tensor = torch.empty(0, dtype=torch.uint8)

    def disown(self) -> None:
        """Unlock the buffer and take it off the ledger: its memory is that of the tensors which are views of it.

        A child process has it too, from here on.
        """
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self._nbytes)
        _libc.madvise(ctypes.c_void_p(self.tensor.data_ptr()), ctypes.c_size_t(whole_pages(self._nbytes)), MADV_DOFORK)

    def _move(self, before: Tier, after: Tier) -> None:
        self._ledger.give_back(self._owner, before, self._nbytes)
        self._ledger.take(self._owner, after, self._nbytes)


def take_arena(owner: str, sizes: Sequence[int], accelerator: Accelerator, ledger: Ledger) -> list[HostBuffer]:
    """Pageable buffers of these numbers of bytes (each above 0), in one mapping. No page of it is touched yet.

    Raises OSError where the kernel has no room.
    """
    if not sizes:
        return []
    total = sum(map(whole_pages, sizes))
    sys.audit("stowplan.arena", total)
    try:
        arena = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise OSError(
            error.errno, f"{owner}: no host memory for {total} bytes of weights ({error.strerror})"
        ) from error
    # Hints, refused without harm: fewer pages to fault in and to register; no copy for a child that runs a program.
    for advice in ([mmap.MADV_HUGEPAGE] if total >= HUGE_PAGE else []) + [mmap.MADV_DONTFORK]:
        with contextlib.suppress(OSError):
            arena.madvise(advice)
    buffers = []
    start = 0
    for nbytes in sizes:
        memory = np.frombuffer(arena, dtype=np.uint8, count=nbytes, offset=start)
        returned = weakref.finalize(memory, _give_back, os.getpid(), arena, start, whole_pages(nbytes))
        returned.atexit = False
        buffers.append(HostBuffer(owner, torch.from_numpy(memory), accelerator, ledger))
        start += whole_pages(nbytes)
    return buffers


def _give_back(owner: int, arena: mmap.mmap, start: int, nbytes: int) -> None:
    if os.getpid() == owner:  # a child has the objects, not the memory
        arena.madvise(mmap.MADV_DONTNEED, start, nbytes)
