"""The engine: all components of one pipeline under one roof.

It adopts a pipeline, puts components where entries say, and during a request brings in and releases what only visits.
At most one component visits at a time; the previous one leaves with its last expected call, or at the latest when
another begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.adoption import adopt
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.hooks import Hooks
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.timeline import Timeline
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import Component, Group


class WeightsEngine:
    """Owns where the weights of a pipeline live. One thread at a time."""

    def __init__(self, accelerator: Accelerator, *, rank: int = 0) -> None:
        """An engine without components; `adopt` gives it some."""
        self.accelerator = accelerator
        self.ledger = Ledger()
        self.timeline = Timeline()
        self.observer: Observer | None = None
        self._rank = rank
        self._components: dict[str, ManagedComponent] = {}
        self._hooks: list[Hooks] = []
        self._calls: list[tuple[str, str]] = []
        self._visiting: str | None = None
        self._layer_depth: dict[Unit, int] = {}

    def adopt(self, modules: Mapping[str, torch.nn.Module]) -> None:
        """Manage components by name. Their weights go to host memory. Raises `AdoptionError` naming what it cannot."""
        for name, module in modules.items():
            self._components[name] = adopt(name, module, self.accelerator, self.ledger)
        for name, component in self._components.items():
            hooks = Hooks(name, component.module, self, self.accelerator.device)
            self._hooks.append(hooks)
            for group, units in component.groups.items():
                for index in range(len(units)):
                    hooks.add_layer(group, index, component.module.get_submodule(f"{group}.{index}"))

    def describe(self) -> tuple[Component, ...]:
        """The components as a record describes them: packed bytes, each storage once."""
        return tuple(
            Component(
                name=name,
                loose_bytes=component.loose.nbytes,
                groups=tuple(
                    Group(name=group, layer_bytes=tuple(unit.nbytes for unit in units))
                    for group, units in component.groups.items()
                ),
            )
            for name, component in self._components.items()
        )

    def entry(self, component: str) -> ComponentPlacement:
        """Where a component is now. Raises KeyError for an unknown one."""
        return self._components[component].entry.model_copy(update={"name": component})

    def place(self, entry: ComponentPlacement) -> None:
        """Bring one component to its entry. After an error it is where it was. Raises KeyError for an unknown one."""
        self._release_visitor()
        self._components[entry.name].place(entry, self._rank)

    def commit(self) -> None:
        """Give back every host copy that nothing needs under the present entries."""
        for component in self._components.values():
            component.commit()

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request: afterwards, whatever happened, nothing visits."""
        self.timeline.restart()
        try:
            with self.accelerator.running():
                yield
        finally:
            self._calls.clear()
            self._layer_depth.clear()
            self._visiting = None
            for component in self._components.values():
                component.end()

    def close(self) -> None:
        """Take all hooks off. The components keep their weights where they are."""
        self._release_visitor()
        for hooks in self._hooks:
            hooks.remove()
        self._hooks = []

    def enter(self, component: str, entry: str) -> None:
        """A hook: an entry of a component is about to run."""
        nested = any(name == component for name, _ in self._calls)
        if not self._calls:
            self.timeline.enter(component)
            if self._visiting != component:
                self._release_visitor()
            self._components[component].begin(self.timeline.passes())
            self._visiting = component
            self._prefetch(ended=False)
        elif not nested:
            self._components[component].begin(None)
        self._calls.append((component, entry))
        if self.observer is not None and not nested:
            self.observer.component_entered(component, entry)

    def leave(self, component: str, entry: str) -> None:
        """A hook: the entry has returned or raised."""
        if (component, entry) not in self._calls:
            return  # it never began: `enter` itself raised
        # After an exception inside, calls may have ended without a word; they end with this one.
        while self._calls and self._calls.pop() != (component, entry):
            pass
        if any(name == component for name, _ in self._calls):
            return
        if self._calls:
            self._components[component].end()
        elif self.timeline.leave(component):
            self._release_visitor()
            self._prefetch(ended=True)
        if self.observer is not None:
            self.observer.component_left(component, entry)

    def enter_layer(self, component: str, group: str, layer: int) -> None:
        """A hook: a layer is about to run."""
        managed = self._components[component]
        unit = managed.groups[group][layer]
        self._layer_depth[unit] = self._layer_depth.get(unit, 0) + 1
        if self._layer_depth[unit] > 1:
            return
        managed.enter_layer(unit)
        if self.observer is not None:
            self.observer.layer_entered(component, group, layer)

    def leave_layer(self, component: str, group: str, layer: int) -> None:
        """A hook: the layer has returned or raised."""
        managed = self._components[component]
        unit = managed.groups[group][layer]
        depth = self._layer_depth.pop(unit, 0) - 1
        if depth > 0:
            self._layer_depth[unit] = depth
            return
        if self.observer is not None:
            self.observer.layer_left(component, group, layer)
        if depth == 0:
            managed.leave_layer(unit)

    def _prefetch(self, *, ended: bool) -> None:
        coming = self.timeline.coming(ended=ended)
        if coming is not None and self._components[coming].entry.prefetch:
            self._components[coming].prefetch()

    def _release_visitor(self) -> None:
        if self._visiting is not None:
            self._components[self._visiting].end()
            self._visiting = None
