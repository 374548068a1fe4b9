"""How the engine hears that a component or a layer runs.

Layers and ``forward`` are heard through module hooks, first in, and out again even after an exception
(``always_call``). Pipelines call VAEs and some encoders by method (``vae.decode``, ``encoder.generate``), where module
hooks never fire, so those methods are wrapped on the instance. Everything is taken off again by `Hooks.remove`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch
from torch.utils._pytree import tree_leaves, tree_map

METHODS: Final = ("encode", "decode", "generate")
"""Entries of a component besides ``forward``."""


class Listener(Protocol):
    """What the engine does at each point."""

    def enter(self, component: str, entry: str) -> None:
        """An entry of a component is about to run."""

    def leave(self, component: str, entry: str) -> None:
        """It has returned or raised, or `enter` has raised."""

    def enter_layer(self, component: str, group: str, layer: int) -> None:
        """A layer is about to run."""

    def leave_layer(self, component: str, group: str, layer: int) -> None:
        """It has returned or raised, or `enter_layer` has raised."""


class Hooks:
    """All hooks of one component."""

    def __init__(self, component: str, module: torch.nn.Module, listener: Listener, device: torch.device) -> None:
        """Nothing is installed yet."""
        self._component = component
        self._module = module
        self._listener = listener
        self._device = device
        self._handles: list[Any] = []
        self._layers: dict[tuple[str, int], tuple[torch.nn.Module, tuple[Any, Any]]] = {}
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        """For each wrapped method our wrapper, and what the instance had before: None where it was the class's."""

    def install(self, lengths: Mapping[str, int]) -> None:
        """Hear of the component's entries, and of every layer of groups of these lengths. All of them, or none."""
        try:
            self._add_entries(self._module)
            self.add_layers(lengths)
        except BaseException:
            self.remove()
            raise

    def _add_entries(self, module: torch.nn.Module) -> None:
        sys.audit("stowplan.hook")
        begins, ends = self._forward_begins, self._forward_ends
        if getattr(module, "_compiled_call_impl", None) is not None:
            # Compiled in place, a module's hooks are compiled with it: ours are no computation.
            begins, ends = torch.compiler.disable(begins), torch.compiler.disable(ends)
        self._handles.append(module.register_forward_pre_hook(begins, prepend=True, with_kwargs=True))
        self._handles.append(module.register_forward_hook(ends, always_call=True))
        for method in METHODS:
            found = getattr(module, method, None)
            if callable(found) and not isinstance(found, torch.nn.Module):
                self._wrap(method, found)

    def add_layers(self, lengths: Mapping[str, int]) -> None:
        """Hear of every layer of groups of these lengths, as the modules are now."""
        for group, length in lengths.items():
            for index in range(length):
                self.add_layer(group, index, self._module.get_submodule(f"{group}.{index}"))

    def add_layer(self, group: str, index: int, layer: torch.nn.Module) -> None:
        """Hear of one layer; of another module in its place, from now on, if it was added before."""
        hooked = self._layers.get((group, index))
        if hooked is not None:
            if hooked[0] is layer:
                return
            for handle in hooked[1]:
                handle.remove()
        sys.audit("stowplan.hook")
        listener, component = self._listener, self._component

        def begins(_module: torch.nn.Module, _args: Any) -> None:
            listener.enter_layer(component, group, index)

        def ends(_module: torch.nn.Module, _args: Any, _output: Any) -> None:
            listener.leave_layer(component, group, index)

        first = layer.register_forward_pre_hook(begins, prepend=True)
        self._layers[group, index] = layer, (first, layer.register_forward_hook(ends, always_call=True))

    def remove(self) -> None:
        """Take everything off: the module is as it was, but for what others have put around it since."""
        for handle in [*self._handles, *(handle for _, handles in self._layers.values() for handle in handles)]:
            handle.remove()
        for method, (entry, before) in self._wrapped.items():
            if self._module.__dict__.get(method) is not entry:
                continue  # theirs may call ours, which does nothing from now on
            if before is None:
                del self._module.__dict__[method]
            else:
                self._module.__dict__[method] = before
        self._handles, self._layers, self._wrapped = [], {}, {}

    def _forward_begins(self, _module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self._listener.enter(self._component, "forward")
        moved: tuple[Any, Any] = self._moved((args, kwargs))
        return moved

    def _forward_ends(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        self._listener.leave(self._component, "forward")

    def _wrap(self, method: str, original: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def entry(*args: Any, **kwargs: Any) -> Any:
            if method not in self._wrapped:  # taken off, and still called by what somebody put around it
                return original(*args, **kwargs)
            try:
                self._listener.enter(self._component, method)
                args, kwargs = self._moved((args, kwargs))
                return original(*args, **kwargs)
            finally:
                self._listener.leave(self._component, method)

        self._wrapped[method] = entry, self._module.__dict__.get(method)  # someone else's, if any, comes back
        self._module.__dict__[method] = entry

    def _moved(self, inputs: Any) -> Any:
        """The inputs, those tensors that lie elsewhere brought to the compute device: never to the weights' device."""

        def is_elsewhere(value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.device != self._device

        # Containers are rebuilt only if they must be: a model may write into a list that it was given.
        if not any(is_elsewhere(leaf) for leaf in tree_leaves(inputs)):
            return inputs
        return tree_map(lambda value: value.to(self._device) if is_elsewhere(value) else value, inputs)
