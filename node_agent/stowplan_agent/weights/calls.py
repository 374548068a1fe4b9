"""What runs at the moment, and what visits the device because of it.

At most one component visits at a time, besides one that is prefetched and one that another calls; it leaves with its
last expected call, or at the latest when another begins or the request ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from typing import Final, ParamSpec, TypeVar

import torch

from stowplan_agent.weights.bypassed import explain
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.rewriting.headroom import RewriteError
from stowplan_agent.weights.timeline import Timeline
from stowplan_agent.weights.unit import Unit

P = ParamSpec("P")
R = TypeVar("R")

UNKNOWN: Final = Timeline()
"""What calls outside a request are expected to be."""


def plain(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method outside autograd and inference mode, whatever its caller is in.

    A parameter that is bound to a tensor of inference mode would become one, and could never be written to again.
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.inference_mode(False), torch.no_grad():
            return method(*args, **kwargs)

    return run


class Calls:
    """The calls of a pipeline's components and layers, as hooks report them."""

    def __init__(self, components: Mapping[str, ManagedComponent]) -> None:
        """``components`` may grow while nothing runs."""
        self.observer: Observer | None = None
        self.stopped: str | None = None
        """Why nothing may run or visit now, if so."""
        self._components = components
        self._expected = UNKNOWN
        self._calls: list[tuple[str, str]] = []
        self._layers: list[Unit] = []
        self._visiting: ManagedComponent | None = None
        self._coming: ManagedComponent | None = None

    @plain
    def restart(self, expected: Timeline = UNKNOWN) -> None:
        """Nothing runs and nothing visits, however the last call ended; a request begins if one is expected.

        Raises `RewriteError` while nothing may.
        """
        self._check_running()
        self._expected = expected
        self._expected.restart()
        self._calls.clear()
        self._layers.clear()
        self._visiting = self._coming = None
        with ExitStack() as stack:  # one that fails must not keep the others
            for component in self._components.values():
                stack.callback(component.end)

    @plain
    def enter(self, component: str, entry: str) -> None:
        """A hook: an entry of a component is about to run. Raises `RewriteError` while nothing may."""
        self._check_running()
        nested = any(name == component for name, _ in self._calls)
        if self.observer is not None and not nested:
            self.observer.component_awaited(component, entry)
        managed = self._components[component]
        if not self._calls:
            self._expected.enter(component)
            if self._visiting is not managed:
                self._release_visitor()
            managed.begin(self._expected.passes(), entry)
            self._visiting = managed
            self._prefetch(ended=False)
        elif not nested:
            managed.begin(None, entry)
        self._calls.append((component, entry))
        if self.observer is not None and not nested:
            self.observer.component_entered(component, entry)

    @plain
    def leave(self, component: str, entry: str) -> None:
        """A hook: the entry has returned or raised."""
        if (component, entry) not in self._calls:
            return  # it never began: `enter` itself raised
        # After an exception inside, calls may have ended without a word; they end with this one.
        while self._calls.pop() != (component, entry):
            pass
        if any(name == component for name, _ in self._calls):
            return
        managed = self._components[component]
        if managed.streams:
            explain(sys.exception(), component)
        managed.order.leave()
        if self._calls:
            managed.end()
        elif self._expected.leave(component):
            if self._expected.coming(ended=False) == component:
                managed.pause()
            else:
                self._release_visitor()
            self._prefetch(ended=True)
        if self.observer is not None:
            self.observer.component_left(component, entry)

    @plain
    def enter_layer(self, component: str, group: str, layer: int) -> None:
        """A hook: a layer is about to run."""
        managed = self._components[component]
        unit = managed.groups[group][layer]
        nested = unit in self._layers
        if self.observer is not None and not nested:
            self.observer.layer_awaited(component, group, layer)
        if not nested:
            managed.enter_layer(unit)
        self._layers.append(unit)
        if self.observer is not None and not nested:
            self.observer.layer_entered(component, group, layer)

    @plain
    def leave_layer(self, component: str, group: str, layer: int) -> None:
        """A hook: the layer has returned or raised."""
        managed = self._components[component]
        unit = managed.groups[group][layer]
        if unit not in self._layers:
            return  # it never began: `enter_layer` itself raised
        self._layers.remove(unit)
        if unit in self._layers:
            return
        if self.observer is not None:
            self.observer.layer_left(component, group, layer)
        managed.leave_layer(unit)
        if self._coming is not None and self._coming.prefetch(1):
            self._coming = None

    def _check_running(self) -> None:
        if self.stopped is not None:
            raise RewriteError(self.stopped)

    def _prefetch(self, *, ended: bool) -> None:
        """Bring in what comes next: at once, or a unit a layer where the link is streaming for the one that runs."""
        name = self._expected.coming(ended=ended)
        self._coming = self._components[name] if name is not None else None
        streaming = not ended and self._visiting is not None and self._visiting.streams
        if self._coming is not None and not streaming:
            self._coming.prefetch()
            self._coming = None

    def _release_visitor(self) -> None:
        visitor, self._visiting = self._visiting, None
        if visitor is not None:
            visitor.end()
