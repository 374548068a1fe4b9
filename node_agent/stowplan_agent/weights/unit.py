"""A unit is what moves as one: one layer, or a component's loose weights. One flat buffer, one copy, one event.

Its tensors are views: of the device buffer while it is held there, of the host copy otherwise. The tensor objects never
change (``tensor.data = view``), so that Parameter identity, references from elsewhere and compiled code survive. A
unit always has at least one of the two; no tensor is ever empty or on the meta device.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.host import HostBuffer
from stowplan_agent.weights.layout import Layout, Place, View, lay_out
from stowplan_agent.weights.ledger import Ledger, Tier


class Unit:
    """The weights of one layer, or the loose ones. After `adopt` they lie packed in a pageable host copy."""

    def __init__(self, owner: str, blocks: Iterable[list[Place]], accelerator: Accelerator, ledger: Ledger) -> None:
        """Takes the tensors over: packs their values into a host copy and makes them views of it."""
        self.layout: Layout = lay_out(blocks)
        self.nbytes = self.layout.nbytes
        self.host: HostBuffer | None = None
        self.device: torch.Tensor | None = None
        self._owner = owner
        self._accelerator = accelerator
        self._ledger = ledger
        self._buffers = [view for view in self.layout.views if view.place.is_buffer]
        self._versions: dict[View, int] = {}
        self._arrived: Event | None = None
        if self.nbytes:
            self.host = HostBuffer(owner, self.nbytes, accelerator, ledger)
            for view in self.layout.views:
                view.of(self.host.tensor).copy_(view.place.tensor)
            self._bind(self.host.tensor)

    def load(self) -> None:
        """Take device memory and queue the copy into it. Raises torch.OutOfMemoryError, changing nothing."""
        if self.device is not None or not self.nbytes:
            return
        assert self.host is not None, "a unit off the device has a host copy"
        buffer = self._accelerator.allocate(self.nbytes)
        self._ledger.take(self._owner, Tier.DEVICE, self.nbytes)
        self._arrived = self.copy_to(buffer, self._accelerator.record())
        self.device = buffer

    def arrive(self) -> None:
        """Let compute wait for a queued load, and make the tensors views of the device buffer."""
        if self._arrived is None or self.device is None:
            return
        self._accelerator.wait(self._arrived)
        self._arrived = None
        self._bind(self.device)

    def release(self) -> None:
        """Leave the device: a pointer drop, except for buffers, which a forward pass may have changed."""
        if self.device is None:
            return
        self.arrive()
        self.keep_host_copy()
        assert self.host is not None
        for view in self._buffers:
            if _changed(view, self._versions):
                self._accelerator.read_back(view.of(self.host.tensor), _current(view))
        self._bind(self.host.tensor)
        self._accelerator.free(self.device)
        self._ledger.give_back(self._owner, Tier.DEVICE, self.nbytes)
        self.device = None

    def keep_host_copy(self) -> None:
        """Make sure that there is a host copy, from the device's bytes where there is none."""
        if self.host is not None or not self.nbytes:
            return
        assert self.device is not None, "a unit without a host copy is on the device"
        self.arrive()
        host = HostBuffer(self._owner, self.nbytes, self._accelerator, self._ledger)
        self._accelerator.read_back(host.tensor, self.device)
        self.host = host

    def drop_host_copy(self) -> None:
        """Give the host copy back; only for a unit that stays on the device."""
        if self.host is None or self.device is None:
            return
        self.arrive()
        self.host.drop()
        self.host = None

    def copy_to(self, buffer: torch.Tensor, after: Event | None) -> Event:
        """Queue a copy of the unit into a device buffer that holds it, not before ``after``."""
        assert self.host is not None
        self._ledger.streamed_bytes += self.nbytes
        return self._accelerator.copy(buffer[: self.nbytes], self.host.tensor, pinned=self.host.pinned, after=after)

    def bind(self, buffer: torch.Tensor) -> None:
        """Make the tensors views of a ring slot that holds the unit."""
        self._bind(buffer)

    def unbind(self) -> None:
        """Make the tensors views of the host copy again, after their time in a ring slot."""
        assert self.host is not None
        self._bind(self.host.tensor)

    def _bind(self, buffer: torch.Tensor) -> None:
        for view in self.layout.views:
            place = view.place
            place.tensor.data = view.of(buffer)
            if place.is_buffer:
                place.module._buffers[place.name] = place.tensor
                self._versions[view] = place.tensor._version


def _changed(view: View, versions: dict[View, int]) -> bool:
    """Whether a forward pass wrote to the buffer, or assigned another tensor to its name."""
    value = view.place.module._buffers[view.place.name]
    return value is not view.place.tensor or value._version != versions[view]


def _current(view: View) -> torch.Tensor:
    """What the module holds now: a forward pass may have assigned another tensor to the buffer's name."""
    value = view.place.module._buffers[view.place.name]
    return view.place.tensor if value is None or value.shape != view.shape else value
