"""Where each tensor of a unit lies in one flat buffer: pure arithmetic over tensors' storages, no allocation.

Tensors whose bytes overlap in one storage (tied weights, views of one another) become one block, counted once; tensors
that merely share a storage, as those read from one memory-mapped file do, stay apart. Each tensor keeps its shape and
stride inside its block. Blocks start at multiples of 256 bytes, the strictest alignment that kernels ask of a base
address (CUDA C++ Programming Guide, "Device Memory Accesses": allocations are aligned to at least 256 bytes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

ALIGNMENT = 256


@dataclass(frozen=True, eq=False)
class Place:
    """A name under which a module holds a tensor. Identity matters: the tensor object is kept, its data is swapped."""

    module: torch.nn.Module
    name: str
    tensor: torch.Tensor
    is_buffer: bool


@dataclass(frozen=True, eq=False)
class View:
    """One tensor inside a block: bytes from the start of the unit's buffer, and its geometry."""

    place: Place
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """The tensor as a view of ``buffer``, a flat uint8 tensor."""
        size = extent(self.shape, self.stride) * self.dtype.itemsize
        flat = buffer[self.offset : self.offset + size].view(self.dtype)
        return flat.as_strided(self.shape, self.stride)


@dataclass(frozen=True, eq=False)
class Layout:
    """The views of one unit and the size of the buffer that holds them, in bytes."""

    views: tuple[View, ...]
    nbytes: int


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last that a tensor of this geometry touches, both included."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def align(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def blocks(places: Iterable[Place]) -> list[list[Place]]:
    """The places, those whose bytes overlap together, in the order in which each first appears."""
    by_storage: dict[int, list[tuple[int, int, int, Place]]] = defaultdict(list)
    for order, place in enumerate(places):
        start, end = _span(place.tensor)
        by_storage[place.tensor.untyped_storage()._cdata].append((start, end, order, place))
    found: list[tuple[int, list[Place]]] = []
    for spans in by_storage.values():
        spans.sort(key=lambda span: (span[0], span[1], span[2]))
        reach = -1
        for start, end, order, place in spans:
            if start < reach or (start == end and reach == end):
                first, members = found[-1]
                members.append(place)
                found[-1] = (min(first, order), members)
            else:
                found.append((order, [place]))
            reach = max(reach, end)
    found.sort(key=lambda block: block[0])
    return [members for _, members in found]


def lay_out(members: Iterable[list[Place]]) -> Layout:
    """Lay blocks one after another, each aligned."""
    views: list[View] = []
    offset = 0
    for block in members:
        spans = [_span(place.tensor) for place in block]
        start = min(first for first, _ in spans)
        for place, (first, _) in zip(block, spans, strict=True):
            tensor = place.tensor
            views.append(View(place, offset + first - start, tensor.dtype, tuple(tensor.shape), tensor.stride()))
        offset = align(offset + max(last for _, last in spans) - start)
    return Layout(tuple(views), offset)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = int(tensor.storage_offset()) * tensor.dtype.itemsize
    return start, start + extent(tensor.shape, tensor.stride()) * tensor.dtype.itemsize
