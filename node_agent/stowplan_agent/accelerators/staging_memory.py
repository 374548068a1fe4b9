"""The memory of the staging ring: one mapping of exact size on huge pages, locked by the driver, cut into pieces.

Not torch's pinned allocator, which rounds up to powers of two and never gives back. Private memory, because the kernel
gives shared anonymous mappings (Python's default) no huge pages. What is locked is known to the byte.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import torch

from stowplan_agent.accelerators.copy_stream import Fence
from stowplan_agent.accelerators.reading_threads import reading_threads

PIECE_BYTES: Final = 16 << 20
"""0.3 ms of a PCIe 5 link: long against what Python spends on a piece, one thread at a time, short against a layer. One
H200 host, 14 threads, 26.6 GiB from the page cache: 1.43, 0.85 and 0.72 s with pieces of 4, 8 and 16 MiB."""
RING_BYTES: Final = 256 << 20
"""A piece for each of 14 threads, and two on their way. It stays locked for as long as the ring lives."""


@dataclass(eq=False, slots=True)
class Piece:
    """One part of the memory. ``free`` is the end of the copy that last read it."""

    memory: torch.Tensor
    free: Fence


class StagingMemory:
    """Pieces, and which of them are unused, the longest unused first. Its user's lock guards `unused`."""

    def __init__(
        self, pin: Callable[[torch.Tensor], bool], fence: Callable[[], Fence], *, ring_bytes: int, piece_bytes: int
    ) -> None:
        """Maps and locks the memory; where the driver refuses it stays pageable. Raises OSError if there is none."""
        pages = mmap.mmap(-1, ring_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Hints. No copy for a child: a piece that is written while a child shares it may move to other pages, and the
        # device would go on reading the old ones.
        for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_DONTFORK):
            with suppress(OSError):
                pages.madvise(advice)
        self._memory = torch.frombuffer(pages, dtype=torch.uint8)
        fault_in(self._memory.split(piece_bytes))
        self.pinned = pin(self._memory)
        self.unused = deque(Piece(part, fence()) for part in self._memory.split(piece_bytes))

    @property
    def locked_bytes(self) -> int:
        """What the driver holds locked."""
        return self._memory.nbytes if self.pinned else 0

    def release(self, unpin: Callable[[torch.Tensor], None]) -> None:
        """Unlock the memory and let it go, once no copy reads it."""
        if self.pinned:
            self.pinned = False
            unpin(self._memory)
        self.unused.clear()
        self._memory = torch.empty(0, dtype=torch.uint8)


def fault_in(pieces: Sequence[torch.Tensor]) -> None:
    """Have every page of these host tensors there, on many cores: a registration faults them in on one (5 GB/s)."""

    def touch(piece: torch.Tensor) -> None:
        piece.numpy()[:: mmap.PAGESIZE] = 0

    with ThreadPoolExecutor(reading_threads()) as pool, suppress(RuntimeError):  # no thread more: no harm
        list(pool.map(touch, pieces))
