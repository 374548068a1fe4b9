"""Where each tensor of a unit lies in one flat buffer: pure arithmetic over tensors' storages.

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
class Block:
    """Places whose bytes overlap, and the bytes of their storage that they touch: from ``start``, ``end`` excluded."""

    places: tuple[Place, ...]
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class View:
    """One tensor inside a block: bytes from the start of the unit's buffer, and its geometry."""

    place: Place
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """The tensor as a view of ``buffer``, a flat uint8 tensor of whole blocks."""
        return self._in(buffer.view(self.dtype))

    def _in(self, elements: torch.Tensor) -> torch.Tensor:
        first = elements.storage_offset() + self.offset // self.dtype.itemsize
        return elements.as_strided(self.shape, self.stride, first)


@dataclass(frozen=True, eq=False)
class Layout:
    """The views of one unit and the size of the buffer that holds them, in bytes."""

    views: tuple[View, ...]
    nbytes: int

    def views_of(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """All tensors as views of ``buffer``, in the order of ``views``: one operation each."""
        elements = {dtype: buffer.view(dtype) for dtype in {view.dtype for view in self.views}}
        return [view._in(elements[view.dtype]) for view in self.views]

    def stand_ins(self) -> list[torch.Tensor]:
        """A tensor of each one's geometry without its bytes: one element, not a number, under all of its indices."""
        ones = [torch.full((view.dtype.itemsize,), 0xFF, dtype=torch.uint8, device="cpu") for view in self.views]
        return [
            one.view(view.dtype).as_strided(view.shape, [0] * len(view.shape))
            for one, view in zip(ones, self.views, strict=True)
        ]


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last that a tensor of this geometry touches, both included."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def align(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def blocks(places: Iterable[Place]) -> list[Block]:
    """The places, those whose bytes overlap together, in the order in which each block first appears."""
    by_storage: defaultdict[int, list[tuple[int, int, int, Place]]] = defaultdict(list)
    for order, place in enumerate(places):
        start, end = _span(place.tensor)
        by_storage[place.tensor.untyped_storage()._cdata].append((start, end, order, place))
    found: list[tuple[int, Block]] = []
    for spans in by_storage.values():
        if len(spans) == 1:  # nearly all: a model has a thousand, and this comes before the first byte is read
            start, end, order, place = spans[0]
            found.append((order, Block((place,), start, end)))
            continue
        spans.sort(key=lambda span: span[:3])
        members: list[tuple[int, int, int, Place]] = []
        reach = 0
        for span in spans:
            if members and span[0] >= reach:
                found.append(_block(members))
                members = []
            members.append(span)
            # An empty tensor touches nothing, but tied ones must stay together: it reaches as far as one byte.
            reach = max(reach, span[1], span[0] + 1)
        found.append(_block(members))
    found.sort(key=lambda numbered: numbered[0])
    return [block for _, block in found]


def block_offsets(members: Sequence[Block]) -> tuple[list[int], int]:
    """Where each block starts in the unit's buffer, one after another and each aligned; and the buffer's bytes."""
    offsets, end = [], 0
    for block in members:
        offsets.append(end)
        end = align(end + block.end - block.start)
    return offsets, end


def lay_out(members: Sequence[Block]) -> Layout:
    """The views of every place of the blocks."""
    offsets, nbytes = block_offsets(members)
    views: list[View] = []
    for block, offset in zip(members, offsets, strict=True):
        for place in block.places:
            tensor = place.tensor
            where = offset + int(tensor.storage_offset()) * tensor.dtype.itemsize - block.start
            views.append(View(place, where, tensor.dtype, tensor.shape, tensor.stride()))
    return Layout(tuple(views), nbytes)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = int(tensor.storage_offset()) * tensor.dtype.itemsize
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    return start, start + extent(tensor.shape, tensor.stride()) * tensor.dtype.itemsize


def _block(members: Sequence[tuple[int, int, int, Place]]) -> tuple[int, Block]:
    """The block of members sorted by start, and the order in which its first member appeared."""
    start, end = members[0][0], max(span[1] for span in members)
    if any((span[0] - start) % span[3].tensor.dtype.itemsize for span in members):
        # Views of several dtypes: each must stay aligned to its own elements, as it was in the storage.
        start -= start % max(span[3].tensor.dtype.itemsize for span in members)
    places = [place for _, _, _, place in sorted(members, key=lambda span: span[2])]
    return min(span[2] for span in members), Block(tuple(places), start, end)
