"""Buffers: the tensors of a unit that a forward pass may change, and what becomes of the changes.

Weights are read-only, so releasing them drops a pointer; a changed buffer has to be noticed first and carried along. A
model changes one in place, by assigning another tensor to its name, or by giving the tensor other memory
(``buffer.data = value``, ``buffer.set_(value)``). Writes in place are counted by torch, but not all of them: those to
``buffer.data`` and a batch norm's in training are not. So what costs nothing to read is read back whenever it leaves
the device, and a larger buffer the first time, when it is compared: one that was never written uncounted until then is
believed by its count from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.layout import Block, View, extent

READ_ANYWAY: Final = 1 << 20
"""Bytes of a buffer that are always read back. Reading 1 MiB takes some 0.1 ms once an interval; buffers of more are
tables, and weights that a quantiser keeps as buffers."""
COMPARED_AT_ONCE: Final = 16 << 20
"""Bytes of host memory that comparing takes."""


class Buffers:
    """The buffers of one unit, and how often each had been written to when its tensor was last bound."""

    def __init__(self, blocks: Sequence[Block], views: Sequence[View]) -> None:
        """``views`` are those of the blocks."""
        tied = {id(place.tensor) for block in blocks if len(block.places) > 1 for place in block.places}
        overlapping = [block for block in blocks if len({id(place.tensor) for place in block.places}) > 1]
        self._overlapping = {id(place.tensor) for block in overlapping for place in block.places}
        self._all = [view for view in views if view.place.is_buffer]
        self._own = [view for view in self._all if id(view.place.tensor) not in tied]
        self._versions: dict[View, int | None] = {}
        self._counted: dict[View, bool] = {}
        """For larger buffers that have been compared: whether torch counts what is written to them."""

    @property
    def any(self) -> bool:
        """Whether the unit has any."""
        return bool(self._all)

    def note(self) -> None:
        """From here on, what is written is a change."""
        for view in self._all:
            self._versions[view] = _version(view.place.tensor)

    def carry(self, host: torch.Tensor, device: torch.Tensor, accelerator: Accelerator) -> None:
        """Write what was changed on the device into the host copy of the unit. Raises what the driver raises."""
        for view in self._all:
            if self._may_have_changed(view, host, device, accelerator):
                accelerator.read_back(view.of(host), view.of(device))

    def absorb(self, memory: torch.Tensor | None) -> None:
        """Take over the value of a tensor that the model has assigned to a buffer's name, or of other memory.

        ``memory`` is the unit's, which its tensors were made views of; None before there is one. What has another shape
        or dtype, is none at all, or shared its bytes with other buffers is the module's own affair from then on: it is
        left alone.
        """
        for view in self._all if memory is not None else ():
            assert memory is not None
            if not _is_at(view, memory):
                self._take_back(view, memory)
        for view in self._own:
            place = view.place
            value = place.module._buffers.get(place.name)
            if value is None or value is place.tensor:
                continue
            if value.shape == place.tensor.shape and value.dtype == place.tensor.dtype:
                place.tensor.copy_(value)
                place.module._buffers[place.name] = place.tensor

    def _take_back(self, view: View, memory: torch.Tensor) -> None:
        """Let a tensor that was given other memory be the view of ours again, with the value that it has."""
        tensor, own = view.place.tensor, view.of(memory)
        value = tensor.data
        if value.untyped_storage().data_ptr() == own.untyped_storage().data_ptr():
            value = value.clone()  # a transposed view of itself, say
        same = [other for other in self._all if other.place.tensor is tensor]
        if value.shape == own.shape and value.dtype == own.dtype and id(tensor) not in self._overlapping:
            own.copy_(value)
        else:
            for place in (other.place for other in same):
                if place.module._buffers.get(place.name) is tensor:
                    place.module._buffers[place.name] = value
        tensor.data = own
        for other in same:
            self._versions[other] = None

    def _may_have_changed(self, view: View, host: torch.Tensor, device: torch.Tensor, accelerator: Accelerator) -> bool:
        tensor = view.place.tensor
        if view.place.module.training or tensor.nbytes <= READ_ANYWAY:
            return True
        if self._versions[view] is None or self._versions[view] != _version(tensor):
            return True
        if view not in self._counted:
            self._counted[view] = not any(
                not torch.equal(_read(part, device, accelerator), host[part]) for part in _parts(view)
            )
        return not self._counted[view]


def _is_at(view: View, memory: torch.Tensor) -> bool:
    tensor = view.place.tensor
    alike = tensor.shape == view.shape and tensor.dtype == view.dtype and tensor.stride() == view.stride
    return alike and (not tensor.numel() or tensor.data_ptr() == memory.data_ptr() + view.offset)


def _parts(view: View) -> Iterator[slice]:
    end = view.offset + extent(view.shape, view.stride) * view.dtype.itemsize
    for start in range(view.offset, end, COMPARED_AT_ONCE):
        yield slice(start, min(end, start + COMPARED_AT_ONCE))


def _read(part: slice, device: torch.Tensor, accelerator: Accelerator) -> torch.Tensor:
    piece = torch.empty(part.stop - part.start, dtype=torch.uint8, device="cpu")
    accelerator.read_back(piece, device[part])
    return piece


def _version(tensor: torch.Tensor) -> int | None:
    """Counts in-place writes; None where torch does not count them, as for tensors made in inference mode."""
    return None if tensor.is_inference() else int(tensor._version)
