"""The units of one component that the ranks have in shards, and what of them can be seen between passes: nothing.

A layer in shards has no host copy once its move is committed, so that outside its own run its tensors are not a number.
Who asks for a module's state gets it all the same: a hook fetches the layer's bytes from the devices of all ranks into
host memory, for this rank alone, and they stay until the component runs or moves again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.interface import ByteSource
from stowplan_agent.weights.entry import EntryError
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.keyed_units import KeyedUnits
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.neighbours import Neighbours, ShardsOfAll
from stowplan_agent.weights.unit import Unit


class HostBytes:
    """A host copy as a source of bytes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """``tensor``: flat bytes."""
        self._tensor = tensor
        self.nbytes = tensor.nbytes

    def read(self, start: int, target: torch.Tensor) -> None:
        """As `accelerators.interface.ByteSource` asks."""
        np.copyto(target.numpy(), self._tensor[start : start + target.nbytes].numpy())


class ShardedUnits:
    """Which units of a component are in shards. Every change is made by all ranks, in one order."""

    def __init__(self, owner: str, accelerator: Accelerator, ledger: Ledger, neighbours: Neighbours | None) -> None:
        """None is. Without ``neighbours`` none ever will be."""
        self.of_all: ShardsOfAll | None = None if neighbours is None else neighbours.shards(owner)
        self._owner = owner
        self._accelerator = accelerator
        self._ledger = ledger
        self._neighbours = neighbours
        self._hooks: dict[Unit, Any] = {}
        self._seen: list[Unit] = []
        """Those whose bytes were fetched for somebody to see."""

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._hooks

    def __bool__(self) -> bool:
        return bool(self._hooks)

    @property
    def nbytes(self) -> int:
        """Of this rank's shards."""
        return sum(unit.shard.nbytes for unit in self._hooks if unit.shard is not None)

    def meet(self) -> None:
        """Let all ranks come together, before anything changes that has to do with shards."""
        if self._neighbours is not None:
            self._neighbours.meet(f"{self._owner}: shards move")

    def all_do(self, work: Callable[[], object]) -> None:
        """Do what else belongs to the move, on every rank or on none."""
        assert self._neighbours is not None, "only ranks with neighbours have shards"
        self._neighbours.all_do(f"move {self._owner}", work)

    def give_back(self, units: Iterable[Unit]) -> None:
        """Let these units be in shards no more; each has a host copy."""
        gone = [unit for unit in units if unit in self._hooks]
        if not gone:
            return
        assert self.of_all is not None, "units are in shards"
        for unit in gone:
            self._hooks.pop(unit).remove()
            unit.shard = None
        self.of_all.give_back(gone)

    def take(self, units: Iterable[Unit], component: KeyedUnits, module: torch.nn.Module) -> None:
        """Put these units of the component into shards, from their host copies, or else from their files.

        Raises as `ShardsOfAll.take` does, and `EntryError` where ranks have different bytes, with none of them there.
        """
        new = [unit for unit in units if unit not in self._hooks]
        if not new:
            return
        assert self.of_all is not None, "an entry with shards has been checked"
        self._check_same(new, self.of_all)
        found = self.of_all.take({unit: _source(unit) for unit in new})
        layers = {unit: module.get_submodule(f"{key[0]}.{key[1]}") for key, unit in component.items() if key}
        for unit, shard in found.items():
            unit.shard = shard
            self._hooks[unit] = layers[unit].register_state_dict_pre_hook(self._shows(unit))

    def forget(self) -> None:
        """Give back what was fetched for somebody to see; whoever has it keeps it."""
        seen, self._seen = self._seen, []
        for unit in seen:
            unit.drop_host_copy()

    def _check_same(self, units: Sequence[Unit], of_all: ShardsOfAll) -> None:
        """By what is known of them, or else by their bytes: of what a rewrite has made nothing else is known."""
        neighbours, known = self._neighbours, dict[Unit, str]()
        assert neighbours is not None, "only ranks with neighbours have shards"
        self.all_do(lambda: known.update({unit: neighbours.contents(unit) for unit in units}))
        if of_all.agree(known.values()):
            return
        self.all_do(lambda: known.update({unit: neighbours.digest(unit) for unit in units}))
        for unit in units:
            unit.identity = known[unit]
        if not of_all.agree(known.values()):
            raise EntryError(
                f"component {self._owner}: the ranks have different weights in layers that are to be shared out over "
                "them; load the same on every rank, or leave shardedLayers out"
            )

    def _shows(self, unit: Unit) -> Callable[..., None]:
        def show(*_: Any) -> None:
            if unit.host is None and all(view.place.tensor.data_ptr() == own.data_ptr() for view, own in unit.bound()):
                with torch.inference_mode(False), torch.no_grad():
                    self._fetch(unit)

        return show

    def _fetch(self, unit: Unit) -> None:
        assert self.of_all is not None, "the unit is in shards"
        (buffer,) = take_arena(self._owner, [unit.nbytes], self._accelerator, self._ledger)
        try:
            self.of_all.read(unit, buffer.tensor)
        except BaseException:
            buffer.drop()
            raise
        unit.keep(buffer)
        self._seen.append(unit)


def _source(unit: Unit) -> ByteSource:
    if unit.host is not None:
        return HostBytes(unit.host.tensor)
    assert unit.source is not None, "a unit that goes into shards has a host copy or a source"
    return unit.source
