"""The bytes of a unit before the engine has them: where the loading library left them, read piece by piece.

A library that loads lazily leaves parameters as views of memory-mapped files, so that nothing has been read when the
engine takes over, and a piece that is read here goes from the file to its place and nowhere else. A parameter whose
conversion was put off (an fp32 checkpoint asked for in bf16) is converted on the way. Weights that already lie in
memory, on whatever device, are copied. Pieces may be read by several threads at once.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch

from stowplan_agent.weights.layout import Block, block_offsets
from stowplan_agent.weights.loading.files import FileBytes, MappedFiles

ConvertedFrom = Callable[[torch.UntypedStorage], torch.Tensor | None]
"""For a storage whose bytes are still to be converted: the contiguous tensor that they are converted from, in order."""

CONVERTED_AT_ONCE: Final = 1 << 20
"""Bytes that a thread converts at a time: what it reads for them, two or four times as much, is memory on top."""
_converting = threading.Lock()  # torch runs one conversion on all cores; several at once would only fight for them


def has_its_bytes(_storage: torch.UntypedStorage) -> None:
    """No conversion was put off: the answer of `ConvertedFrom` for weights that were loaded by hand."""


@dataclass(frozen=True)
class Origin:
    """What is known of how weights were loaded: which are not converted yet, and which files are mapped."""

    converted_from: ConvertedFrom = has_its_bytes
    files: MappedFiles | None = None


IN_MEMORY: Final = Origin()
"""Weights that were made or loaded by hand."""


class _Stretch(NamedTuple):
    """A block's bytes: from ``offset`` in the unit's buffer. ``values`` is flat: bytes, or elements to be converted."""

    offset: int
    nbytes: int
    values: torch.Tensor | None
    """None where a file has the bytes as they are."""
    dtype: torch.dtype | None = None
    """What ``values`` become on the way; None for bytes."""
    file: FileBytes | None = None
    """Where the bytes of ``values`` are, if a file has them."""


class UnitSource:
    """Where the blocks of one unit are to be read. Keeps files open and memory alive until it is dropped."""

    def __init__(self, blocks: Sequence[Block], origin: Origin = IN_MEMORY) -> None:
        """Looks at no storage before the first `read`, so that the first layer of many is read at once."""
        self._blocks, self._origin = blocks, origin
        self._offsets, self._nbytes = block_offsets(blocks)
        self._stretches: list[_Stretch] = []
        self._ends: list[int] = []
        self._locating = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Of the unit's buffer, alignment included."""
        return self._nbytes

    def read(self, start: int, target: torch.Tensor) -> None:
        """Write bytes ``start`` to ``start + target.nbytes`` of the unit's buffer into a flat uint8 host tensor.

        ``start`` is a multiple of the alignment. Bytes between blocks are left as they are.
        """
        self._locate()
        end = start + target.nbytes
        for stretch in self._stretches[bisect_right(self._ends, start) :]:
            if stretch.offset >= end:
                return
            first, last = max(start, stretch.offset), min(end, stretch.offset + stretch.nbytes)
            _write(stretch, first - stretch.offset, target[first - start : last - start])

    def identity(self) -> str | None:
        """Which bytes of which files these are, in 32 characters; None where any are known to be in memory alone.

        The same text in two processes of one node means the same bytes, without reading one of them. A share of a
        tensor that was split on loading is at another offset, or in memory.
        """
        self._locate()
        found: list[object] = []
        for stretch in self._stretches:
            if stretch.file is None:
                return None
            kept = None if stretch.values is None else stretch.values.dtype
            found.append((stretch.offset, stretch.nbytes, kept, stretch.dtype, *stretch.file.identity))
        return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()

    def _locate(self) -> None:
        with self._locating:
            if self._ends:
                return
            placed = zip(self._blocks, self._offsets, strict=True)
            self._stretches = [_stretch(block, at, self._origin) for block, at in placed if block.end > block.start]
            self._ends = [stretch.offset + stretch.nbytes for stretch in self._stretches]


def _stretch(block: Block, offset: int, origin: Origin) -> _Stretch:
    tensor = block.places[0].tensor
    storage, nbytes = tensor.untyped_storage(), block.end - block.start
    unconverted = origin.converted_from(storage)
    if unconverted is None:
        if origin.files is not None and tensor.is_cpu:
            file = origin.files.find_at(storage.data_ptr() + block.start, nbytes)
            if file is not None:
                return _Stretch(offset, nbytes, None, file=file)
        raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        # Bytes and not elements: a stride of 0 cannot be written through.
        raw.set_(storage, block.start, (nbytes,), (1,))
        return _Stretch(offset, nbytes, raw)
    size = tensor.dtype.itemsize
    elements = unconverted.flatten()[block.start // size : block.end // size]
    # By file where there is one: reading past the end of a mapping that was cut short would end the process.
    file = origin.files.find(elements) if origin.files is not None else None
    return _Stretch(offset, nbytes, elements, tensor.dtype, file)


def _write(stretch: _Stretch, start: int, target: torch.Tensor) -> None:
    if stretch.dtype is not None:
        for part in range(0, target.nbytes, CONVERTED_AT_ONCE):
            _convert(stretch, stretch.dtype, start + part, target[part : part + CONVERTED_AT_ONCE])
        return
    if stretch.file is not None:
        stretch.file.read(start, target)
        return
    assert stretch.values is not None, "bytes that no file has are in memory"
    values = stretch.values[start : start + target.nbytes]
    if values.device.type == "cpu":
        np.copyto(target.numpy(), values.numpy())  # one core, without Python's lock: the callers' threads add up
    else:
        target.copy_(values)


def _convert(stretch: _Stretch, dtype: torch.dtype, start: int, target: torch.Tensor) -> None:
    assert stretch.values is not None, "a conversion is of elements"
    values = stretch.values[start // dtype.itemsize : (start + target.nbytes) // dtype.itemsize]
    if stretch.file is not None:
        read = torch.empty(values.nbytes, dtype=torch.uint8, device="cpu")
        stretch.file.read(start // dtype.itemsize * values.itemsize, read)
        values = read.view(values.dtype)
    with _converting:
        target.view(dtype).copy_(values)
