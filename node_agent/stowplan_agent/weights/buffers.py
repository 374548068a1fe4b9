"""Buffers: the tensors of a unit that a forward pass may change, in place or by assigning another tensor to their name.

Weights are read-only, so releasing them drops a pointer; a changed buffer has to be noticed first and carried along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from stowplan_agent.weights.layout import Block, View


class Buffers:
    """The buffers of one unit, and how often each had been written to when its tensor was last bound."""

    def __init__(self, blocks: Sequence[Block], views: Sequence[View]) -> None:
        """``views`` are those of the blocks."""
        tied = {id(place.tensor) for block in blocks if len(block.places) > 1 for place in block.places}
        self._all = [view for view in views if view.place.is_buffer]
        self._own = [view for view in self._all if id(view.place.tensor) not in tied]
        self._versions: dict[View, int | None] = {}

    @property
    def any(self) -> bool:
        """Whether the unit has any."""
        return bool(self._all)

    def note(self) -> None:
        """From here on, what is written is a change."""
        for view in self._all:
            self._versions[view] = _version(view.place.tensor)

    def changed(self) -> Iterator[View]:
        """Those that were, or may have been, written to in place."""
        for view in self._all:
            # A batch norm in training writes to its statistics without torch's counting it.
            uncounted = self._versions[view] is None or view.place.module.training
            if uncounted or self._versions[view] != _version(view.place.tensor):
                yield view

    def absorb(self) -> None:
        """Take over the value of a tensor that the model has assigned to a buffer's name.

        One of another shape or dtype, or none at all, is the module's own affair from then on: it is left alone.
        """
        for view in self._own:
            place = view.place
            value = place.module._buffers.get(place.name)
            if value is None or value is place.tensor:
                continue
            if value.shape == place.tensor.shape and value.dtype == place.tensor.dtype:
                place.tensor.copy_(value)
                place.module._buffers[place.name] = place.tensor


def _version(tensor: torch.Tensor) -> int | None:
    """Counts in-place writes; None where torch does not count them, as for tensors made in inference mode."""
    return None if tensor.is_inference() else int(tensor._version)
