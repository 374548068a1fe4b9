"""The device buffers of one ring: this rank's own, or slots that all ranks have and bring the same layers into.

Taken together when an interval begins and given back together when it ends, so that between intervals a ring costs
nothing. How bytes come into them is decided here, when they are used is decided by the ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.neighbours import SlotsOfAll
from stowplan_agent.weights.unit import Unit


@dataclass(eq=False)
class Slot:
    """A device buffer. ``free_after`` is the end of the compute that last read it."""

    buffer: torch.Tensor
    number: int
    """Of the ring's slots, in the order in which they were taken."""
    free_after: Event | None = None
    views: dict[Unit, list[torch.Tensor]] = field(default_factory=dict)

    def views_of(self, unit: Unit) -> list[torch.Tensor]:
        """The unit's tensors as views of this buffer: made once, for they are bound again in every pass."""
        if unit not in self.views:
            self.views[unit] = unit.views(self.buffer)
        return self.views[unit]


class Slots:
    """Takes the slots of one ring, brings units into them, and gives them back."""

    def __init__(self, owner: str, accelerator: Accelerator, ledger: Ledger, shared: SlotsOfAll | None = None) -> None:
        """``shared``: where all ranks run this ring."""
        self._owner = owner
        self._accelerator = accelerator
        self._ledger = ledger
        self._shared = shared

    def take(self, sizes: Sequence[int]) -> list[Slot]:
        """Slots of these numbers of bytes. Raises torch.OutOfMemoryError, and what ``shared`` does, with none taken."""
        taken: list[Slot] = []
        shared = None if self._shared is None else self._shared.open(self._owner, sizes)
        try:
            for number, nbytes in enumerate(sizes):
                buffer = self._accelerator.allocate(nbytes) if shared is None else shared[number]
                taken.append(Slot(buffer, number))
                self._ledger.take(self._owner, Tier.DEVICE, nbytes)
        except BaseException:
            self.give_back(taken)
            raise
        return taken

    def bring(self, unit: Unit, slot: Slot) -> Event:
        """Queue a unit into a slot, not before what last read it; returns the event at which it is there."""
        # Cold slots wait for compute's now: their memory may just have been freed by it.
        after = slot.free_after if slot.free_after is not None else self._accelerator.record()
        if self._shared is None:
            event = unit.copy_to(slot.buffer, after)
        else:
            event = self._shared.bring(slot.number, unit, after)
        self._ledger.streamed_bytes += unit.nbytes
        return event

    def give_back(self, slots: Iterable[Slot]) -> None:
        """All that were taken. Copies that are on their way to them are let go."""
        for slot in slots:
            nbytes = slot.buffer.nbytes
            slot.views.clear()
            if self._shared is None:
                self._accelerator.free(slot.buffer)
            self._ledger.give_back(self._owner, Tier.DEVICE, nbytes)
        if self._shared is not None:
            self._shared.close()
