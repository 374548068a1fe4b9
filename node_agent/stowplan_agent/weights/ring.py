"""The ring: streamed layers pass through a few device buffers, in the order in which they run, pass after pass.

Copies are queued strictly in running order, over all groups of a component, each group into slots of its own: the
recurrence of PLANNING.md section 3. A copy into a slot waits for the event of the compute that last read it; compute
waits for the copy's event; the host waits for neither. The sequence wraps from the last layer of a pass to the first of
the next, and stops with the last expected pass. A layer that is called out of order restarts the sequence from there;
one that is not expected at all is never copied ahead, and passes through a slot of its group when it is called: slower
for once, never wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.neighbours import SlotsOfAll
from stowplan_agent.weights.slots import Slot, Slots
from stowplan_agent.weights.unit import Unit


class Ring:
    """The streamed layers of one component, and the slots that they pass through.

    A position counts expected layers from the first of the first pass; position ``p`` is layer ``p`` modulo a pass.
    """

    def __init__(
        self,
        owner: str,
        groups: Sequence[tuple[Sequence[Unit], int]],
        accelerator: Accelerator,
        ledger: Ledger,
        order: Sequence[Unit] | None = None,
        shared: SlotsOfAll | None = None,
    ) -> None:
        """``groups``: for each group its streamed units, none of them empty, and its slots.

        ``order``: the units that a pass is expected to run, in that order; those that are not streamed do not matter
        here. All streamed units in the order of ``groups`` if it is not known. ``shared``: the slots of all ranks.
        """
        self._owner = owner
        self._accelerator = accelerator
        self._slots = Slots(owner, accelerator, ledger, shared)
        self._groups = groups
        self._group = {unit: number for number, (units, _) in enumerate(groups) for unit in units}
        self._sequence = [unit for unit in (self._group if order is None else order) if unit in self._group]
        self._index = {unit: index for index, unit in enumerate(self._sequence)}
        self._free: list[list[Slot]] = [[] for _ in groups]
        self._loaded: OrderedDict[int, tuple[Slot, Event]] = OrderedDict()
        self._running: dict[Unit, Slot] = {}
        self._last = 0
        self._next = 0
        self._end: int | None = 0

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._group

    @property
    def is_empty(self) -> bool:
        """Whether no layer is expected to pass."""
        return not self._sequence

    def open(self) -> None:
        """Take the slots. Raises torch.OutOfMemoryError, with nothing taken."""
        groups = [group for group, (units, slots) in enumerate(self._groups) if units for _ in range(slots)]
        largest = [max((unit.nbytes for unit in units), default=0) for units, _ in self._groups]
        taken = self._slots.take([largest[group] for group in groups])
        for group, slot in zip(groups, taken, strict=True):
            self._free[group].append(slot)

    def begin(self, passes: int | None) -> None:
        """Start with cold slots, for a number of passes, or for ever where it is not known."""
        self._end = None if passes is None else passes * len(self._sequence)
        self._fill()

    def use(self, unit: Unit) -> None:
        """The unit's layer runs next: wait for its copy and make its tensors views of the slot."""
        slot = self._next_in_sequence(unit) if unit in self._index else self._out_of_sequence(unit)
        self._running[unit] = slot
        unit.bind(slot.views_of(unit))

    def done(self, unit: Unit) -> None:
        """The unit's layer has been issued: its slot is free once that compute is over."""
        if unit not in self._running:
            return  # its copy failed in `use`
        slot = self._running.pop(unit)
        unit.unbind()
        slot.free_after = None  # should no mark be had, the next copy takes one of its own
        self._free[self._group[unit]].append(slot)
        slot.free_after = self._accelerator.record()
        self._fill()

    def close(self) -> None:
        """Give the slots back. Copies that are still on their way to them are let go: nobody reads them."""
        self._end = 0
        for unit in self._running:
            unit.unbind()
        held = [*self._running.values(), *(slot for slot, _ in self._loaded.values())]
        held += [slot for slots in self._free for slot in slots]
        self._running.clear()
        self._loaded.clear()
        self._free = [[] for _ in self._groups]
        self._slots.give_back(held)

    def _next_in_sequence(self, unit: Unit) -> Slot:
        position = self._find(unit)
        slot, copied = self._loaded[position]
        self._accelerator.wait(copied)
        del self._loaded[position]
        self._last = position
        return slot

    def _out_of_sequence(self, unit: Unit) -> Slot:
        """The sequence goes on where it is, but for what it takes back if all slots of the unit's group are full."""
        free = self._free[self._group[unit]]
        if not free:
            of_group = (loaded for loaded in self._loaded if self._group[self._at(loaded)] == self._group[unit])
            self._next = max(of_group, default=self._next)
            self._drop(loaded for loaded in self._loaded if loaded >= self._next)
        if not free:
            raise self._no_slot()
        self._accelerator.wait(self._slots.bring(unit, free[0]))
        return free.pop(0)

    def _at(self, position: int) -> Unit:
        return self._sequence[position % len(self._sequence)]

    def _find(self, unit: Unit) -> int:
        """The position at which the unit is loaded or on its way; what lies before it was skipped and is dropped."""
        length, index = len(self._sequence), self._index[unit]
        position = next((loaded for loaded in self._loaded if loaded % length == index), None)
        self._drop(loaded for loaded in self._loaded if position is None or loaded < position)
        if position is None:
            position = self._last - self._last % length + index
            if self._end is not None and self._next >= self._end:
                self._end = None  # more passes than expected: how many more is not known
            self._next = position
            self._fill()
            if position not in self._loaded:
                raise self._no_slot()
        return position

    def _drop(self, positions: Iterable[int]) -> None:
        for position in list(positions):
            # The copy may be under way; the next one into this slot is queued behind it on the same stream.
            slot, _ = self._loaded.pop(position)
            self._free[self._group[self._at(position)]].append(slot)

    def _fill(self) -> None:
        while self._sequence and (self._end is None or self._next < self._end):
            unit = self._at(self._next)
            free = self._free[self._group[unit]]
            if not free:
                return
            self._loaded[self._next] = (free[0], self._slots.bring(unit, free[0]))
            free.pop(0)
            self._next += 1

    def _no_slot(self) -> RuntimeError:
        """All of a group's slots are running: a layer inside itself, say."""
        return RuntimeError(f"component {self._owner}: no slot of the ring is free for the layer that runs")
