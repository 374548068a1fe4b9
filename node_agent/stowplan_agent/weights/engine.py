"""The engine: all components of one pipeline under one roof.

It adopts a pipeline and puts components where entries say; `calls` brings in and releases what only visits while the
pipeline runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.adoption import check_apart, survey, take_over
from stowplan_agent.weights.calls import Calls, plain
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.hooks import Hooks
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.timeline import Timeline
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import Component, Group


class WeightsEngine:
    """Owns where the weights of a pipeline live. One thread at a time."""

    def __init__(self, accelerator: Accelerator, *, rank: int = 0) -> None:
        """An engine without components; `adopt` gives it some."""
        self.accelerator = accelerator
        self.ledger = Ledger()
        self.timeline = Timeline()
        """What the next requests are expected to call."""
        self._rank = rank
        self._components: dict[str, ManagedComponent] = {}
        self._calls = Calls(self._components)
        self._hooks: list[Hooks] = []

    @property
    def observer(self) -> Observer | None:
        """Who watches the hooks, if anyone."""
        return self._calls.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._calls.observer = observer

    @plain
    def adopt(self, modules: Mapping[str, torch.nn.Module]) -> None:
        """Manage components by name; their weights go to host memory. A module named twice has its first name only.

        Raises `AdoptionError` naming what it cannot manage, with no component changed.
        """
        known = {component.module: name for name, component in self._components.items()}
        for name, module in modules.items():
            known.setdefault(module, name)
        surveys = {name: survey(name, module) for module, name in known.items()}
        check_apart(surveys)
        for name, found in surveys.items():
            if name in self._components:
                continue
            component = take_over(found, self.accelerator, self.ledger)
            self._components[name] = component
            hooks = Hooks(name, component.module, self._calls, self.accelerator.device)
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
        return self._components[component].entry

    @plain
    def place(self, entry: ComponentPlacement) -> None:
        """Bring one component to its entry. After an error it is where it was, byte for byte.

        Raises KeyError for an unknown component, `EntryError` for an entry that it cannot have,
        torch.OutOfMemoryError where the device has no room.
        """
        component = self._components[entry.name]
        self._calls.restart()
        component.place(entry, self._rank)

    @plain
    def commit(self) -> None:
        """Give back every host copy that nothing needs under the present entries."""
        self._calls.restart()
        for component in self._components.values():
            component.commit()

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
        """Take all hooks off and unlock host memory. The components keep their weights where they are."""
        self._calls.restart()
        for hooks in self._hooks:
            hooks.remove()
        self._hooks = []
        for component in self._components.values():
            component.unpin()
