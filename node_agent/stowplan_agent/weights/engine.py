"""The engine: all components of one pipeline under one roof, put where entries say.

`calls` brings in and releases what only visits while the pipeline runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

from stowplan_agent import collector
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.admission import admit, bring_in, destinations
from stowplan_agent.weights.audit import check_host, host_buffers
from stowplan_agent.weights.calls import Calls, plain
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.entry import Seed, everything_on_the_host
from stowplan_agent.weights.hooks import Hooks
from stowplan_agent.weights.host import HostBuffer
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.source import ConvertedFrom, has_its_bytes
from stowplan_agent.weights.locking import lockable_bytes
from stowplan_agent.weights.managers import check_manager, set_manager
from stowplan_agent.weights.neighbours import NeighboursOf
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.rewriting.rewrite import rewrite
from stowplan_agent.weights.snapshot import Snapshot, drop_new_copies, take_snapshot
from stowplan_agent.weights.timeline import Timeline
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import Component


class WeightsEngine:
    """Owns where the weights of a pipeline live. One thread at a time."""

    def __init__(self, accelerator: Accelerator, *, rank: int = 0, neighbours: NeighboursOf | None = None) -> None:
        """Manages nothing yet. ``neighbours``: the other ranks, where there are any."""
        self.accelerator = accelerator
        self.ledger = Ledger()
        self.timeline = Timeline()  # what the next requests are expected to call
        self._rank = rank
        self._neighbours = None if neighbours is None else neighbours(self.ledger)
        self._components: dict[str, ManagedComponent] = {}
        self._calls = Calls(self._components)
        self._hooks: dict[str, Hooks] = {}
        self._closed = False

    @property
    def observer(self) -> Observer | None:
        """Who watches the hooks, if anyone."""
        return self._calls.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._calls.observer = observer

    @plain
    def adopt(
        self,
        modules: Mapping[str, torch.nn.Module],
        seed: Seed = everything_on_the_host,
        *,
        converted_from: ConvertedFrom = has_its_bytes,
    ) -> None:
        """Manage components by name, loading each straight to where ``seed`` puts it. One module has one name.

        ``seed`` is asked once, for the components that are new. ``converted_from`` tells which weights the library has
        not converted yet. Raises `AdoptionError` naming what cannot be managed, with no component changed; and what
        `place` raises, with the components placed before managed, and the others as the library left them.
        """
        self._restart()
        for name, module in modules.items():
            check_manager(name, module, self._calls)
        with collector.paused():
            new = admit(modules, self._components, self.accelerator, self.ledger, converted_from, self._neighbours)
            entries = destinations(new, seed, self.accelerator)
            for name, component in new.items():
                self._hooks[name] = bring_in(component, self._calls, self.accelerator, entries[name], self._rank)
                self._components[name] = component
                set_manager(component.module, self._calls)

    @plain
    def drop(self, names: Iterable[str]) -> None:
        """Manage these components no longer: their weights are ordinary tensors in host memory, fixed ones stay.

        Raises KeyError for an unknown one, and what `place` raises without host memory, with it still managed.
        """
        self._restart()
        for component in [self._components[name] for name in names]:
            component.disown()
            self._hooks.pop(component.name).remove()
            del self._components[component.name]
            set_manager(component.module, None)

    def describe(self) -> tuple[Component, ...]:
        """The components as a record describes them: packed bytes, each storage once."""
        return tuple(component.describe() for component in self._components.values())

    def entry(self, component: str) -> ComponentPlacement:
        """Where a component is now. Raises KeyError for an unknown one."""
        entry = self._components[component].entry
        assert entry is not None, "a component is placed when it is adopted"
        return entry

    @plain
    def place(self, entry: ComponentPlacement) -> None:
        """Bring one component to its entry. After an error it is where it was, byte for byte.

        Raises KeyError for an unknown component, `EntryError` for an entry that it cannot have,
        torch.OutOfMemoryError where the device has no room.
        """
        component = self._components[entry.name]
        self._calls.restart()
        component.place(entry, self._rank)

    def snapshot(self) -> Snapshot:
        """What is held now, to compare with later, and for `drop_new_copies`."""
        return take_snapshot(self._components, self.ledger)

    @plain
    def drop_new_copies(self, before: Snapshot) -> None:
        """Once everything is where a snapshot has it: give back the host copies that were made since."""
        drop_new_copies(self._components, before)

    @plain
    def commit(self) -> None:
        """Give back every host copy that nothing needs under the present entries, and what only loading needed."""
        self._calls.restart()
        for component in self._components.values():
            component.commit()
        self.accelerator.trim()

    @contextmanager
    def rewriting(self, host_headroom: int | None = None) -> Iterator[None]:
        """Whatever changes modules or weights is done within: adapters loaded, fused, unfused, taken away.

        Placement, pins and hooks are as before, layers larger or smaller: a record or a plan made before speaks of
        another model, and whoever serves must prove the placement anew, against a new reference output. Load and fuse
        in two rewrites. ``host_headroom``: host memory in bytes that may be taken.

        Raises `RewriteError` beyond it, and within for whatever runs or moves weights; `AdoptionError`,
        torch.OutOfMemoryError, and what the driver or the caller raises. After each, modules and weights are bit for
        bit as before, but for what was written into weights in place, around the tuners.
        """
        self._restart()
        self.commit()
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            rewrite(self._components, self.accelerator, self.ledger, self._rank, host_headroom, self._neighbours),
        ):
            self._calls.stopped = "the weights are being rewritten; end that before anything else runs or moves"
            try:
                yield
            finally:
                self._calls.stopped = None
                self._calls.restart()
        for component in self._components.values():
            self._hooks[component.name].add_layers(component.lengths())

    def check(self) -> None:
        """Compare the ledger with the device's allocator and with the kernel. Raises `LedgerError`."""
        self.ledger.check(self.accelerator.counters().weights)
        check_host(self.ledger, self._host_buffers())

    def lockable_bytes(self, most: int) -> int | None:
        """What the driver locks of the host copies before it refuses; None where it locks ``most`` bytes or all."""
        return lockable_bytes(self._host_buffers(), most)

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request: afterwards, whatever happened, nothing visits."""
        self._calls.restart(self.timeline)
        try:
            with self.accelerator.running():
                yield
        finally:
            self._calls.restart()

    @plain
    def close(self) -> None:
        """Take all hooks off and unlock host memory. Weights stay where they are, in shards too: see `drop`."""
        if self._closed:
            return
        self._calls.restart()
        self._closed = True
        for hooks in self._hooks.values():
            hooks.remove()
        for component in self._components.values():
            set_manager(component.module, None)
            component.unpin()

    def _restart(self) -> None:
        if self._closed:
            raise RuntimeError("the engine is closed; make another one")
        self._calls.restart()

    def _host_buffers(self) -> list[HostBuffer]:
        return host_buffers(self._components.values())
