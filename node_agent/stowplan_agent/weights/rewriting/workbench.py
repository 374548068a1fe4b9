"""Where weights are when their bytes are changed: on the device, a layer at a time, the old bytes kept.

An adapter is fused where it would be if everything were resident, because kernels of the host and of the device round
differently. What must hold: an old host copy is never written to, a new one takes its place; bytes of a unit that is on
the device for good are copied to the host first. So until `forget`, `undo` brings back every byte, and until then each
changed unit has its bytes twice, which the ledger says. Units stay on the bench until others are needed: a layer with
ten adapters goes there and back once.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.host import HostBuffer, take_arena
from stowplan_agent.weights.keyed_units import UnitKey
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.rewriting.headroom import Headroom, RewriteError
from stowplan_agent.weights.unit import Unit

BenchKey = tuple[str, UnitKey]
"""A component's name and the key of one of its units."""
PURPOSE = "keeping the weights as they were until the rewrite is over"


class Workbench:
    """The units that are being changed, and the old bytes of those that have been."""

    def __init__(
        self,
        components: Mapping[str, ManagedComponent],
        accelerator: Accelerator,
        ledger: Ledger,
        headroom: Headroom,
    ) -> None:
        """Nothing is changed yet; nothing visits the device."""
        self._components = components
        self._accelerator = accelerator
        self._ledger = ledger
        self._headroom = headroom
        self._visitors: dict[BenchKey, bool] = {}
        """What is on the bench, and whether it is there only for that."""
        self._before: dict[BenchKey, HostBuffer] = {}

    def bring(self, keys: Set[BenchKey]) -> None:
        """Let these units be on the device, their old bytes safe.

        Raises `RewriteError` where the host has no room for those, torch.OutOfMemoryError, what the driver raises.
        """
        if keys <= self._visitors.keys():
            return
        self.put_back()
        for key in sorted(keys, key=str):
            unit = self._unit(key)
            if not unit.nbytes:
                continue
            visits = unit.device is None
            if not visits and key not in self._before:
                self._before[key] = self._copy_of(key[0], unit)
            self._visitors[key] = visits
            unit.identity = None  # its weights are about to be changed
            unit.load()
            unit.arrive()

    def put_back(self) -> None:
        """What is on the bench has its new bytes: where it lives on the host, in a new host copy."""
        for key, visits in list(self._visitors.items()):
            unit = self._unit(key)
            _collect(unit)
            if visits:
                copy, old = self._copy_of(key[0], unit), unit.host
                unit.keep(copy)
                assert old is not None, "a unit that only visits the device has a host copy"
                if self._before.setdefault(key, old) is not old:
                    old.drop()
                unit.release()
            del self._visitors[key]

    def sweep(self) -> None:
        """Take everything off the bench, its new bytes lost: before `undo`."""
        for key, visits in self._visitors.items():
            unit = self._unit(key)
            if visits:
                unit.release()
        self._visitors.clear()

    def undo(self) -> None:
        """Bring back the old bytes. The units are of the same tensors again as when the bytes were kept."""
        for key, old in self._before.items():
            unit = self._unit(key)
            assert unit.nbytes == old.tensor.nbytes, "a unit of the same tensors has the same layout"
            if unit.device is None:
                if unit.host is not None:
                    unit.host.drop()
                unit.keep(old)
                continue
            copied = self._accelerator.copy(
                unit.device, old.tensor, pinned=old.pinned, after=self._accelerator.record()
            )
            self._accelerator.wait(copied)
            old.drop()
        self._before.clear()

    def forget(self) -> None:
        """The new bytes are here to stay: give the old ones back."""
        for old in self._before.values():
            old.drop()
        self._before.clear()

    def _copy_of(self, component: str, unit: Unit) -> HostBuffer:
        self._headroom.take(component, unit.nbytes, PURPOSE)
        (buffer,) = take_arena(component, [unit.nbytes], self._accelerator, self._ledger)
        try:
            unit.read_back(buffer)
        except BaseException:
            buffer.drop()
            raise
        return buffer

    def _unit(self, key: BenchKey) -> Unit:
        return self._components[key[0]].unit(key[1])


def _collect(unit: Unit) -> None:
    """Write tensors that were given other memory (``weight.data = fused``) into the unit's own, and bind them to it."""
    for view, own in unit.bound():
        tensor = view.place.tensor
        if tensor.data_ptr() == own.data_ptr():
            continue
        if tensor.shape != own.shape or tensor.dtype != own.dtype:
            raise RewriteError(
                f"fusing made a weight of {tuple(own.shape)} {own.dtype} one of {tuple(tensor.shape)} {tensor.dtype}, "
                "so nothing was changed; only the values of a managed weight can change"
            )
        own.copy_(tensor.data)
        tensor.data = own
