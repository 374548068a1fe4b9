"""One unit's host copy that all ranks of the node have: what `weights.host.HostBuffer` is for one rank alone.

Each rank accounts for its own share and locks that, which is what it fetches over its own link. So the accounts of all
ranks together are those of one copy, and locking, which takes as long as a copy of the same bytes, is shared out too.
Where ranks do not swap shares, each locks and accounts for as much of the copy as it is told (`locks`).
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.ranks.shares import Share
from stowplan_agent.ranks.store.mapping import Bytes, protect
from stowplan_agent.weights.ledger import Ledger, Tier

MADV_DOFORK: Final = 11  # linux/mman.h
_libc = ctypes.CDLL(None)


class SharedBuffer:
    """One rank's hold of a shared copy. Pinned or pageable, and the ledger always knows which its share is."""

    def __init__(
        self, owner: str, memory: Bytes, own: Share, accelerator: Accelerator, ledger: Ledger, *, locks: Share | None
    ) -> None:
        """Of `NodeStore.take`. ``own`` is accounted for; ``locks`` (``own`` if None) is what `set_pinned` locks."""
        self.tensor = torch.from_numpy(memory)
        self.own = own
        self.locks = own if locks is None else locks
        self._memory = memory
        self._owner = owner
        self._accelerator = accelerator
        self._ledger = ledger
        self._sealed = False
        self._unlock: weakref.finalize[Any, SharedBuffer] | None = None
        ledger.take(owner, Tier.PAGEABLE, own.nbytes)

    @property
    def pinned(self) -> bool:
        """Whether the driver has locked what this rank fetches."""
        return self._unlock is not None

    @property
    def sealed(self) -> bool:
        """Whether writing to it ends the process: once it is filled."""
        return self._sealed

    def seal(self) -> None:
        """It is filled: nothing of this process writes to it any more."""
        protect(self._memory, writable=False)
        self._sealed = True

    @contextmanager
    def writable(self) -> Iterator[None]:
        """Within it this process may write, for one rewrite that all ranks have agreed on and one rank makes."""
        protect(self._memory, writable=True)
        try:
            yield
        finally:
            if self._sealed:
                protect(self._memory, writable=False)

    def set_pinned(self, wanted: bool) -> None:
        """Lock or unlock. Where the driver refuses, it stays pageable and copies are slower, not wrong."""
        if wanted and self._unlock is None and self.locks.nbytes:
            locked = self.tensor[self.locks.part]
            with self.writable():  # the driver locks pages for writing, as a device might write to them
                if not self._accelerator.pin(locked):
                    return
            # Memory that is unmapped while the driver has it registered cannot be registered again by its next owner.
            self._unlock = weakref.finalize(self, self._accelerator.unpin, locked)
            self._unlock.atexit = False
            self._move(Tier.PAGEABLE, Tier.PINNED)
        elif not wanted and self._unlock is not None:
            self._accelerator.unpin(self.tensor[self.locks.part])  # first: what the driver keeps is locked
            self._unlock.detach()
            self._unlock = None
            self._move(Tier.PINNED, Tier.PAGEABLE)

    def drop(self) -> None:
        """Unlock and let go. The pages go when the last view of the last rank does."""
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self.own.nbytes)
        self._forget()

    def disown(self) -> None:
        """Unlock, and off the ledger: the memory is that of the tensors which are views of it, in children too."""
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self.own.nbytes)
        length = -(-self._memory.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        _libc.madvise(ctypes.c_void_p(self._memory.ctypes.data), ctypes.c_size_t(length), MADV_DOFORK)

    def _move(self, before: Tier, after: Tier) -> None:
        self._ledger.give_back(self._owner, before, self.own.nbytes)
        self._ledger.take(self._owner, after, self.own.nbytes)

    def _forget(self) -> None:
        self.tensor = torch.empty(0, dtype=torch.uint8)
        self._memory = self.tensor.numpy()
