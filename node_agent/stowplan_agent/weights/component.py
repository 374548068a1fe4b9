"""One component under management: its units, its present entry, and what it holds while it is in use.

Absolute and idempotent: `place` takes a whole entry and goes there from wherever the component is; placing the same
entry twice changes nothing. `begin` and `end` bracket the component's own intervals and bring in what only visits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.ring import Ring
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement, GroupPlacement, streamed_layers

REST = ComponentPlacement(name="rest", mode="Offload")
"""The entry of a component that was just adopted: everything in pageable host memory."""


class ManagedComponent:
    """A component's weights. Not in use (`begin` not called, or `end` called) whenever `place` is."""

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        loose: Unit,
        groups: Mapping[str, tuple[Unit, ...]],
        accelerator: Accelerator,
        ledger: Ledger,
    ) -> None:
        """Everything lies in host memory and nothing is held on the device."""
        self.name = name
        self.module = module
        self.loose = loose
        self.groups = groups
        self.entry = REST
        self.in_use = False
        self._accelerator = accelerator
        self._ledger = ledger
        self._ring: Ring | None = None
        self._visitors: list[Unit] = []

    def units(self) -> Iterable[Unit]:
        """All units, loose weights first."""
        yield self.loose
        for units in self.groups.values():
            yield from units

    def place(self, entry: ComponentPlacement, rank: int) -> None:
        """Go to an entry. After an error the component is where it was, and the error is raised."""
        before = self.entry
        try:
            self._settle(entry, rank)
        except BaseException:
            self._settle(before, rank)
            raise
        self.entry = entry

    def commit(self) -> None:
        """Give back the host copies of weights that stay on the device for good."""
        for unit in self._permanent(self.entry):
            unit.drop_host_copy()

    def prefetch(self) -> None:
        """Queue the load of an Offload component during the interval before its own."""
        if not self.in_use and self.entry.mode == "Offload":
            self._visit(self.units())

    def begin(self, passes: int | None) -> None:
        """An own interval begins: bring in visitors, open the ring. Raises torch.OutOfMemoryError with nothing held."""
        if self.in_use:
            return
        try:
            self._visit(self._visiting(self.entry))
            for unit in self._visitors:
                unit.arrive()
            if self.entry.mode == "Layerwise":
                self._ring = self._new_ring()
                self._ring.open()
                self._ring.begin(passes)
        except BaseException:
            self._leave()
            raise
        self.in_use = True

    def end(self) -> None:
        """The interval is over: everything that only visited is released."""
        self._leave()
        self.in_use = False

    def enter_layer(self, unit: Unit) -> None:
        """The unit's layer is about to run."""
        if self._ring is not None and unit in self._ring:
            self._ring.use(unit)

    def leave_layer(self, unit: Unit) -> None:
        """The unit's layer has returned."""
        if self._ring is not None and unit in self._ring:
            self._ring.done(unit)

    def _settle(self, entry: ComponentPlacement, rank: int) -> None:
        permanent = set(self._permanent(entry))
        for unit in self.units():
            if unit not in permanent:
                unit.keep_host_copy()
        # Release before acquiring: the peak of a move is the larger of its two ends.
        for unit in self.units():
            if unit not in permanent:
                unit.release()
        self._pin(entry, rank)
        for unit in permanent:
            unit.load()
        for unit in permanent:
            unit.arrive()

    def _pin(self, entry: ComponentPlacement, rank: int) -> None:
        pinned = set(self._pinned(entry, rank))
        for wanted in (False, True):
            for unit in self.units():
                if unit.host is not None and (unit in pinned) is wanted:
                    unit.host.set_pinned(wanted)

    def _pinned(self, entry: ComponentPlacement, rank: int) -> Iterable[Unit]:
        """Pinned units: of an Offload component the first that fit its share, of a group the first that it counts."""
        if entry.mode == "Offload":
            share = entry.pinned_bytes[rank] if entry.pinned_bytes else 0
            for unit in self.units():
                share -= unit.nbytes
                if share < 0:
                    return
                yield unit
        for group in entry.groups or ():
            streamed, resident = self._split(group)
            keeping = streamed + (resident if group.lifetime == "Forward" else [])
            yield from keeping[: group.pinned_layers[rank]]

    def _permanent(self, entry: ComponentPlacement) -> Iterable[Unit]:
        if entry.mode == "Resident":
            yield from self.units()
        elif entry.mode == "Layerwise":
            if entry.loose_lifetime != "Forward":
                yield self.loose
            for group in entry.groups or ():
                if group.lifetime == "Permanent":
                    yield from self._split(group)[1]

    def _visiting(self, entry: ComponentPlacement) -> Iterable[Unit]:
        if entry.mode == "Offload":
            yield from self.units()
        elif entry.mode == "Layerwise":
            if entry.loose_lifetime == "Forward":
                yield self.loose
            for group in entry.groups or ():
                if group.lifetime == "Forward":
                    yield from self._split(group)[1]

    def _split(self, group: GroupPlacement) -> tuple[list[Unit], list[Unit]]:
        units = self.groups[group.name]
        streamed = set(streamed_layers(len(units), group.resident_layers, group.policy))
        return (
            [unit for index, unit in enumerate(units) if index in streamed],
            [unit for index, unit in enumerate(units) if index not in streamed],
        )

    def _visit(self, units: Iterable[Unit]) -> None:
        for unit in units:
            if unit.device is None and unit.nbytes:
                unit.load()
                self._visitors.append(unit)

    def _new_ring(self) -> Ring:
        slots = {group.name: group for group in self.entry.groups or ()}
        parts = [(self._split(slots[name])[0], slots[name].slots) for name in self.groups]
        return Ring(self.name, parts, self._accelerator, self._ledger)

    def _leave(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        for unit in self._visitors:
            unit.release()
        self._visitors = []
