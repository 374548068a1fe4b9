"""One unit's host copy that all ranks of the node have: what `weights.host.HostBuffer` is for one rank alone.

Each rank accounts for its own share and locks that, which is what it fetches over its own link. So the accounts of all
ranks together are those of one copy, and locking, which takes as long as a copy of the same bytes, is shared out too.
Where ranks do not swap shares, each locks and accounts for as much of the copy as it is told (`locks`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.ranks.shares import Share
from stowplan_agent.ranks.store.mapping import Mapping, inherit, protect
from stowplan_agent.weights.ledger import Ledger, Tier


class SharedBuffer:
    """One rank's hold of a shared copy. Pinned or pageable, and the ledger always knows which its share is."""

    def __init__(
        self, owner: str, mapping: Mapping, own: Share, accelerator: Accelerator, ledger: Ledger, *, locks: Share
    ) -> None:
        """Of `NodeStore.take`. ``own`` is accounted for, ``locks`` is what `set_pinned` locks."""
        self.tensor = torch.from_numpy(mapping.memory)
        self.own = own
        self.locks = locks
        self._mapping: Mapping | None = mapping
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

    def copy_to(self, buffer: torch.Tensor, accelerator: Accelerator, after: Event | None) -> Event:
        """Queue a copy of all bytes over this rank's own link: run by run, for no copy may cross where locking ends."""
        start, end = 0, after
        for run, pinned in self.runs:
            end = accelerator.copy(buffer[start : start + run.nbytes], run, pinned=pinned, after=after)
            start += run.nbytes
        return end

    @property
    def runs(self) -> list[tuple[torch.Tensor, bool]]:
        """All bytes in order, in runs that this rank has locked or not: no copy may cross from one to the other."""
        if not self.pinned:
            return [(self.tensor, False)]
        before, own, after = self.tensor.split((self.locks.start, self.locks.nbytes, self._after))
        return [(run, run is own) for run in (before, own, after) if run.nbytes]

    @property
    def counted(self) -> torch.Tensor:
        """What this rank's ledger has of it: its share."""
        return self.tensor[self.own.part]

    @property
    def sealed(self) -> bool:
        """Whether writing to it ends the process: once it is filled."""
        return self._sealed

    def seal(self) -> None:
        """It is filled: nothing of this process writes to it any more."""
        self._protect(writable=False)
        self._sealed = True

    @contextmanager
    def writable(self) -> Iterator[None]:
        """Within it this process may write, for one rewrite that all ranks have agreed on and one rank makes."""
        self._protect(writable=True)
        try:
            yield
        finally:
            if self._sealed:
                self._protect(writable=False)

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
        self.tensor, self._mapping = torch.empty(0, dtype=torch.uint8), None

    def disown(self) -> None:
        """Unlock, and off the ledger: the memory is that of the tensors which are views of it, in children too."""
        self.set_pinned(False)
        self._ledger.give_back(self._owner, Tier.PAGEABLE, self.own.nbytes)
        if self._mapping is not None:
            inherit(self._mapping)

    def _move(self, before: Tier, after: Tier) -> None:
        self._ledger.give_back(self._owner, before, self.own.nbytes)
        self._ledger.take(self._owner, after, self.own.nbytes)

    @property
    def _after(self) -> int:
        return self.tensor.nbytes - self.locks.end

    def _protect(self, *, writable: bool) -> None:
        if self._mapping is not None:
            protect(self._mapping, writable=writable)
