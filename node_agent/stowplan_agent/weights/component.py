"""One component under management: its units, its present entry, and what it holds while it is in use.

Absolute and idempotent: `place` takes a whole entry and goes there from wherever the component is; placing the same
entry twice changes nothing. The first entry is where the weights are loaded to. `begin` and `end` bracket the
component's own intervals and bring in what only visits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.entry import Roles, check_entry
from stowplan_agent.weights.keyed_units import KeyedUnits
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_agent.weights.relocation import Relocation
from stowplan_agent.weights.ring import Ring
from stowplan_agent.weights.running_order import RunningOrder
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import Component, Group


class ManagedComponent(KeyedUnits):
    """A component's weights, and where they are."""

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        loose: Unit,
        groups: Mapping[str, Sequence[Unit]],
        accelerator: Accelerator,
        ledger: Ledger,
        neighbours: Neighbours | None = None,
    ) -> None:
        """Everything is where the library left it, until `place` is called for the first time."""
        super().__init__(loose, groups)
        self.name = name
        self.module = module
        self.entry: ComponentPlacement | None = None
        self.in_use = False
        self._accelerator = accelerator
        self._neighbours = neighbours
        self._ledger = ledger
        self.relocation = Relocation(name, module, accelerator, ledger, neighbours)
        self._roles = Roles((), (), (), (), frozenset())
        self._ring: Ring | None = None
        self.order = RunningOrder()
        self._visitors: list[Unit] = []

    def describe(self) -> Component:
        """As a record describes it: packed bytes, each storage once."""
        groups = tuple(
            Group(name=group, layer_bytes=tuple(unit.nbytes for unit in units)) for group, units in self.groups.items()
        )
        return Component(name=self.name, loose_bytes=self.loose.nbytes, groups=groups)

    def place(self, entry: ComponentPlacement, rank: int) -> None:
        """Go to an entry; for the first time, straight from where the library left the weights.

        After an error the component is where it was, byte for byte, and the error is raised: `EntryError` for an entry
        that it cannot have, torch.OutOfMemoryError, what the driver or the reading of a file raises.
        """
        check_entry(entry, self.lengths(), self.total_bytes(), rank, shards=self.relocation.sharded.of_all is not None)
        roles = self.relocation.roles(entry, self, rank)
        self.end()
        self.relocation.meet(roles)
        without_host_copy = [unit for unit in self.units() if unit.host is None]
        try:
            self.relocation.go(self, roles)
        except BaseException:
            if self.entry is None:
                for unit in self.units():
                    unit.unsettle()
                raise
            self.relocation.go(self, self._roles)
            for unit in without_host_copy:
                unit.drop_host_copy()
            raise
        self._roles = roles
        if self.entry is None:
            for unit in self.units():
                unit.settle()
        self.entry = entry

    def resume(self, entry: ComponentPlacement, rank: int) -> None:
        """After `replace`: go where the entry puts the units that there are now. Raises what the driver raises."""
        roles = self.relocation.roles(entry, self, rank)
        self.relocation.go(self, roles)
        self._roles, self.entry = roles, entry
        self.commit()

    def commit(self) -> None:
        """Give back the host copies of weights that stay on the device, or in shards, for good."""
        for unit in (*self._roles.permanent, *self._roles.sharded):
            unit.drop_host_copy()

    def unpin(self) -> None:
        """Unlock every host copy."""
        for unit in self.units():
            if unit.host is not None:
                unit.host.set_pinned(False)

    def disown(self) -> None:
        """Bring the weights to host memory that is theirs, and nobody's on the ledger. Raises as `place` does."""
        self.place(ComponentPlacement(name=self.name, mode="Offload"), rank=0)
        for unit in self.units():
            if unit.host is not None:
                unit.host.disown()

    @property
    def streams(self) -> bool:
        """Whether layers pass through a ring now."""
        return self._ring is not None and not self._ring.is_empty

    def prefetch(self, most: int | None = None) -> bool:
        """Queue loads of an Offload component that should come during the interval before its own; ``most`` units.

        Returns whether nothing is left to queue.
        """
        if self.in_use or self.entry is None or not self.entry.prefetch:
            return True
        absent = [unit for unit in self.units() if unit.nbytes and unit.device is None]
        self._visit(absent[:most])
        return most is None or len(absent) <= most

    def begin(self, passes: int | None, called: str) -> None:
        """An own interval begins: bring in visitors, open the ring. Raises torch.OutOfMemoryError with nothing held.

        ``called``: by which of its methods.
        """
        if self.in_use:
            return
        try:
            self._visit(self._roles.visiting)
            for unit in self._visitors:
                unit.arrive()
            if self._roles.rings:
                order = self.order.of(called, self)
                shared = None
                if self._neighbours is not None:
                    self.relocation.sharded.forget()
                    shared = self._neighbours.slots(self.relocation.sharded.of_all)
                ring = Ring(self.name, self._roles.rings, self._accelerator, self._ledger, order, shared)
                ring.open()
                self._ring = ring
                ring.begin(passes)
        except BaseException:
            self.end()
            raise
        self.in_use = True
        self.order.begin(called)

    def pause(self) -> None:
        """The interval is over and the next one is the component's own too: visitors stay, the ring goes cold."""
        self.order.end(self)
        ring, self._ring, self.in_use = self._ring, None, False
        if ring is not None:
            ring.close()

    def end(self) -> None:
        """The interval is over: everything that only visited is released."""
        with ExitStack() as stack:  # one that fails must not keep the others; it leaves with the next end
            for unit in self._visitors:
                stack.callback(self._dismiss, unit)
            stack.callback(self.pause)

    def enter_layer(self, unit: Unit) -> None:
        """The unit's layer is about to run."""
        self.order.enter(unit)
        if self._ring is not None and unit in self._ring:
            self._ring.use(unit)

    def leave_layer(self, unit: Unit) -> None:
        """The unit's layer has returned."""
        if self._ring is not None and unit in self._ring:
            self._ring.done(unit)

    def _dismiss(self, unit: Unit) -> None:
        unit.release()
        self._visitors.remove(unit)

    def _visit(self, units: Iterable[Unit]) -> None:
        for unit in units:
            if unit.device is None and unit.nbytes:
                unit.load()
                self._visitors.append(unit)
