"""The ring: streamed layers pass through a few device buffers, in the order in which they run, pass after pass.

Copies are queued strictly in running order, over all groups of a component, each group into slots of its own: the
recurrence of PLANNING.md section 3. A copy into a slot waits for the event of the compute that last read it; compute
waits for the copy's event; the host waits for neither. The sequence wraps from the last layer of a pass to the first of
the next, and stops with the last expected pass. A layer that is called out of order restarts the sequence from there:
slower for once, never wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.unit import Unit


@dataclass(eq=False)
class Slot:
    """A device buffer. ``free_after`` is the end of the compute that last read it."""

    buffer: torch.Tensor
    free_after: Event | None = None


class Ring:
    """The streamed layers of one component, and the slots that they pass through."""

    def __init__(
        self, owner: str, groups: Sequence[tuple[Sequence[Unit], int]], accelerator: Accelerator, ledger: Ledger
    ) -> None:
        """``groups``: for each group its streamed units in running order, and its number of slots."""
        self._owner = owner
        self._accelerator = accelerator
        self._ledger = ledger
        self._groups = groups
        self._sequence = [(unit, number) for number, (units, _) in enumerate(groups) for unit in units]
        self._position = {unit: index for index, (unit, _) in enumerate(self._sequence)}
        self._free: list[list[Slot]] = []
        self._loaded: OrderedDict[int, tuple[Slot, Event]] = OrderedDict()
        self._running: dict[Unit, tuple[int, Slot]] = {}
        self._next = 0
        self._end: int | None = None

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._position

    def open(self) -> None:
        """Take the slots. Raises torch.OutOfMemoryError, with nothing taken."""
        try:
            for units, slots in self._groups:
                size = max((unit.nbytes for unit in units), default=0)
                self._free.append([])
                for _ in range(slots if units else 0):
                    self._free[-1].append(Slot(self._accelerator.allocate(size)))
                    self._ledger.take(self._owner, Tier.DEVICE, size)
        except torch.OutOfMemoryError:
            self.close()
            raise

    def begin(self, passes: int | None) -> None:
        """Start with cold slots, for a number of passes, or for ever where it is not known."""
        if not self._sequence:
            return
        self._next, self._end = 0, None if passes is None else passes * len(self._sequence)
        self._pump()

    def use(self, unit: Unit) -> None:
        """The unit's layer runs next: wait for its copy and make its tensors views of the slot."""
        position = self._find(unit)
        if position is None:
            self._restart(self._position[unit])
            position = self._position[unit]
        slot, copied = self._loaded[position]
        self._accelerator.wait(copied)
        del self._loaded[position]
        unit.bind(slot.buffer)
        self._running[unit] = (position, slot)

    def done(self, unit: Unit) -> None:
        """The unit's layer has been issued: its slot is free once that compute is over."""
        if unit not in self._running:
            return  # its copy failed in `use`
        position, slot = self._running.pop(unit)
        unit.unbind()
        slot.free_after = self._accelerator.record()
        self._free[self._sequence[position % len(self._sequence)][1]].append(slot)
        self._pump()

    def close(self) -> None:
        """Give the slots back, once no copy writes to them."""
        for unit in list(self._running):
            self.done(unit)
        for slot, copied in self._loaded.values():
            self._accelerator.wait(copied)
            self._give_back(slot)
        for slots in self._free:
            for slot in slots:
                self._give_back(slot)
        self._loaded.clear()
        self._free = []

    def _find(self, unit: Unit) -> int | None:
        """The position at which the unit is loaded or on its way; what lies before it was skipped and is dropped."""
        for position in self._loaded:
            if self._sequence[position % len(self._sequence)][0] is unit:
                for skipped in [earlier for earlier in self._loaded if earlier < position]:
                    self._drop(skipped)
                return position
        return None

    def _restart(self, position: int) -> None:
        for loaded in list(self._loaded):
            self._drop(loaded)
        self._next, self._end = position, None
        self._pump()

    def _drop(self, position: int) -> None:
        # The copy may still be under way; the next one into this slot is queued behind it on the same stream.
        slot, _ = self._loaded.pop(position)
        self._free[self._sequence[position % len(self._sequence)][1]].append(slot)

    def _pump(self) -> None:
        while self._end is None or self._next < self._end:
            unit, group = self._sequence[self._next % len(self._sequence)]
            if not self._free or not self._free[group]:
                return
            slot = self._free[group].pop(0)
            # Cold slots wait for compute's now: their memory may just have been freed by it.
            after = slot.free_after if slot.free_after is not None else self._accelerator.record()
            self._loaded[self._next] = (slot, unit.copy_to(slot.buffer, after))
            self._next += 1

    def _give_back(self, slot: Slot) -> None:
        self._accelerator.free(slot.buffer)
        self._ledger.give_back(self._owner, Tier.DEVICE, slot.buffer.nbytes)
