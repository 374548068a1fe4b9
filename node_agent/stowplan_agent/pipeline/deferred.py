"""Promised conversions: tensors whose memory is mapped and not touched, and what will fill it.

A promise is an ordinary strided tensor of the dtype that was asked for. It costs no memory until it is settled, which
is to say converted into the memory that it has. Settled bits are those of ``source.to(dtype)`` (but for the payload of
a NaN, which torch does not fix either). Until then it reads as zeros: `lazy_loading` sees to it that nobody reads it
while a library loads; afterwards that is up to whoever holds the `Deferred`.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from typing import Final

import torch

from stowplan_agent.pipeline.mapped import Span

NO_RESERVE: Final[int] = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""The kernel need not have the memory yet. Python 3.11 lacks the name; the value is that of x86-64 and arm64."""


class _Promise(mmap.mmap):
    """Untouched memory, and what will fill it. The storage made of it is its only owner: the two die together."""

    source: torch.Tensor | None
    dtype: torch.dtype
    address: int


class Deferred:
    """The conversions that were promised and not made yet. Any thread may ask and settle."""

    def __init__(self) -> None:
        """Nothing is promised yet."""
        # By the storage object's address, which is another's at the earliest when the promise is gone from here too; if
        # some other thread holds on to the promise just then, the address of its memory tells.
        self._promises: weakref.WeakValueDictionary[int, _Promise] = weakref.WeakValueDictionary()
        self._settling = threading.RLock()

    @property
    def pending_bytes(self) -> int:
        """Bytes of memory that settling everything would take."""
        return sum(len(promise) for promise in self._promises.values())

    def source_of(self, storage: torch.UntypedStorage) -> torch.Tensor | None:
        """What fills a storage; None where the storage has its bytes.

        The answer is flat and lies in a mapped file. Its elements, in order, converted to the dtype of the tensors on
        the storage, are the storage's bytes from the first to the last.
        """
        promise = self._promises.get(storage._cdata)
        return promise.source if promise is not None and promise.address == storage.data_ptr() else None

    def settle(self, storage: torch.UntypedStorage) -> None:
        """Convert into a storage now, and forget the promise. Does nothing where there is none."""
        self._settle(storage._cdata)

    def settle_all(self) -> None:
        """Settle what is left."""
        for key in list(self._promises):
            self._settle(key)

    def settle_fed_by(self, memory: Span) -> None:
        """Settle whatever is to be filled from this memory, before it is written."""
        for key, promise in list(self._promises.items()):
            if promise.source is not None and Span.of(promise.source).meets(memory):
                self._settle(key)

    def promise(self, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What ``source.to(dtype)`` will be, its memory untouched. ``source`` must have neither gaps nor repeats."""
        promise = _Promise(-1, source.numel() * dtype.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        promise.dtype = dtype
        promise.source = source.detach().as_strided((source.numel(),), (1,))
        tensor = torch.frombuffer(promise, dtype=dtype).as_strided(source.shape, source.stride())
        promise.address = tensor.data_ptr()
        self._promises[tensor.untyped_storage()._cdata] = promise
        return tensor

    def _settle(self, key: int) -> None:
        with self._settling:
            promise = self._promises.get(key)
            if promise is None or promise.source is None:
                return
            torch.frombuffer(promise, dtype=promise.dtype).copy_(promise.source)
            self._promises.pop(key, None)
            promise.source = None
