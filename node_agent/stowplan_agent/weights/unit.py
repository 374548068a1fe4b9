"""A unit is what moves as one: one layer, or a component's loose weights. One flat buffer, one copy, one event.

Its tensors are views: of the device buffer while it is held there, else of the host copy, else of what the loading
library made. The tensor objects never change (``tensor.data = view``), so that Parameter identity, references from
elsewhere and compiled code survive. A unit has at least one of the three (in shards it may have none: its tensors are
not a number then), and no tensor is ever empty or meta. Every method does all that it says or raises, nothing changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.buffers import Buffers
from stowplan_agent.weights.host import HostBuffer, take_arena
from stowplan_agent.weights.layout import Block, View, lay_out
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.loading.source import IN_MEMORY, Origin, UnitSource


class Unit:
    """The weights of one layer, or the loose ones."""

    def __init__(
        self, owner: str, blocks: Sequence[Block], accelerator: Accelerator, ledger: Ledger, origin: Origin = IN_MEMORY
    ) -> None:
        """Decides the layout and moves nothing: the tensors stay where they were loaded until a copy is made."""
        self._layout = lay_out(blocks)
        self.nbytes = self._layout.nbytes
        self.source: UnitSource | None = UnitSource(blocks, origin)
        self.host: HostBuffer | None = None
        self.device: torch.Tensor | None = None
        self.shard: torch.Tensor | None = None  # this rank's, while the ranks have the unit in shards
        self.identity: str | None = None  # which bytes its weights are, where that is known (`UnitSource.identity`)
        self._owner = owner
        self._accelerator = accelerator
        self._ledger = ledger
        self._buffers = Buffers(blocks, self._layout.views)
        self._room: torch.Tensor | None = None
        self._on_its_way: Event | None = None
        self._loaded_views = [view.place.tensor.data for view in self._layout.views]
        self._host_views: list[torch.Tensor] = []

    def reserve(self) -> None:
        """Take the device memory of a `load` to come. Raises torch.OutOfMemoryError."""
        if self.device is None and self._room is None and self.nbytes:
            self._room = self._accelerator.allocate(self.nbytes)
            self._ledger.take(self._owner, Tier.DEVICE, self.nbytes)

    def load(self) -> None:
        """Queue the copy to the device, into memory that is taken first if need be. Raises torch.OutOfMemoryError."""
        if self.device is not None or not self.nbytes:
            return
        self._buffers.absorb(self._memory)
        self.reserve()
        assert self._room is not None
        try:
            self._on_its_way = self.copy_to(self._room, self._accelerator.record())
        except BaseException:
            self._free()
            raise
        self._ledger.streamed_bytes += self.nbytes
        self.device, self._room = self._room, None

    def arrive(self) -> None:
        """Let compute wait for a queued load, and make the tensors views of the device buffer."""
        if self._on_its_way is None or self.device is None:
            return
        self._accelerator.wait(self._on_its_way)
        self._on_its_way = None
        self.bind(self.views(self.device))

    def release(self) -> None:
        """Leave the device: a pointer drop, except for buffers that a forward pass has changed."""
        if self.device is not None and self._on_its_way is None:
            if self.source is None and self.host is None:
                self.keep_host_copy()
            elif self.source is None and self.host is not None:
                self._buffers.absorb(self._memory)
                self._buffers.carry(self.host.tensor, self.device, self._accelerator)
            self.unbind()
        self._free()

    def keep_host_copy(self) -> None:
        """Make sure that there is a host copy, from the device's bytes where there is none."""
        if self.host is not None or self.device is None:
            return
        (buffer,) = take_arena(self._owner, [self.nbytes], self._accelerator, self._ledger)
        try:
            self.read_back(buffer)
        except BaseException:
            buffer.drop()
            raise
        self.keep(buffer)

    def on_device(self) -> torch.Tensor:
        """The device's bytes, compute waiting for them, for `ranks.store.NodeStore.read_back`."""
        assert self.device is not None, "only a unit on the device is read back"
        self.arrive()
        self._buffers.absorb(self._memory)
        return self.device

    @property
    def changes(self) -> bool:
        """Whether a forward pass may change bytes of it: such a host copy is one rank's own."""
        return self._buffers.any

    def read_back(self, buffer: HostBuffer) -> None:
        """Write the device's bytes into a host buffer, for `keep`."""
        self._accelerator.read_back(buffer.tensor, self.on_device())

    def keep(self, buffer: HostBuffer) -> None:
        """A host buffer has the unit's bytes now: it is the host copy from here on."""
        # Views of the host copy are made once: a streamed layer is bound to them again after every use.
        self.host, self._host_views = buffer, self.views(buffer.tensor)
        if self.device is None:
            self.unbind()
        else:
            self._buffers.note()

    def drop_host_copy(self) -> None:
        """Give the host copy back; only for a unit that stays on the device, or in shards."""
        if self.host is None or (self.device is None and self.shard is None):
            return
        self.arrive()
        self.host.drop()
        self.host, self._host_views = None, []
        self._stand_in()

    def settle(self) -> None:
        """The unit is where it was to be loaded: let go of the files and the memory that it came from."""
        if self.source is not None and self.identity is None:
            self.identity = self.source.identity()
        self.source, self._loaded_views = None, [] if self.nbytes else self._loaded_views
        self._stand_in()

    def unsettle(self) -> None:
        """Go back to what the loading library made, as if nothing had been loaded: only before `settle`."""
        self.release()
        self.abandon()
        self.unbind()

    def abandon(self) -> None:
        """Give back all memory, whatever its bytes: the tensors are views of something else, or will be at once."""
        self._free()
        if self.host is not None:
            self.host.drop()
            self.host, self._host_views = None, []

    def copy_to(self, buffer: torch.Tensor, after: Event | None) -> Event:
        """Queue a copy of the unit into a device buffer that holds it, not before ``after``."""
        destination = buffer[: self.nbytes]
        if self.host is not None:
            return self.host.copy_to(destination, self._accelerator, after)
        assert self.source is not None, "a unit off the device has a host copy or a source"
        return self._accelerator.fill(destination, self.source, after=after)

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The tensors as views of a buffer that holds the unit, for `bind`."""
        return self._layout.views_of(buffer)

    def bound(self) -> list[tuple[View, torch.Tensor]]:
        """Each tensor's place, and what the unit has last made it a view of; the model may have changed that since."""
        views = self._host_views if self.host is not None else self._loaded_views
        if self.device is not None and self._on_its_way is None:
            views = self.views(self.device)
        return list(zip(self._layout.views, views, strict=True))

    def bind(self, views: Sequence[torch.Tensor]) -> None:
        """Make the tensors these views of one buffer."""
        for view, tensor in zip(self._layout.views, views, strict=True):
            view.place.tensor.data = tensor
        self._buffers.note()

    def unbind(self) -> None:
        """Make the tensors views of what there is off the device again."""
        self.bind(self._host_views if self.host is not None else self._loaded_views)

    def _stand_in(self) -> None:
        if self.shard is not None and self.host is None:
            self._loaded_views = self._layout.stand_ins()
            self.unbind()

    @property
    def _memory(self) -> torch.Tensor | None:
        """What the tensors are views of; None for what the loading library made."""
        if self.device is not None and self._on_its_way is None:
            return self.device
        return None if self.host is None else self.host.tensor

    def _free(self) -> None:
        buffer = self.device if self.device is not None else self._room
        self.device = self._room = self._on_its_way = None
        if buffer is not None:
            self._accelerator.free(buffer)
            self._ledger.give_back(self._owner, Tier.DEVICE, self.nbytes)
