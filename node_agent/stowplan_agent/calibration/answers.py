"""What components answered while they were watched, as shapes: enough to answer in their place later.

An answer is kept as its structure, with every tensor replaced by what it takes to make one like it. No tensor is kept:
a record must not hold a request's activations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from stowplan_agent.weights.hooks import METHODS

DEEPEST: Final = 4
"""Objects inside objects that are looked into: a distribution, a cache of layers of keys."""


@dataclass(frozen=True)
class Like:
    """A tensor of this shape and type, on this device."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def made(self) -> torch.Tensor:
        """Zeros. Raises torch.OutOfMemoryError."""
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class Hollow:
    """An object that holds tensors, without them."""

    shell: Any
    fields: dict[str, Answer]

    def made(self) -> Any:
        """The same kind of object, holding zeros."""
        filled = copy.copy(self.shell)
        vars(filled).update({name: answer.made() for name, answer in self.fields.items()})
        return filled


@dataclass(frozen=True)
class Answer:
    """What a call returned."""

    leaves: tuple[Any, ...]
    structure: TreeSpec

    @classmethod
    def of(cls, value: Any, depth: int = DEEPEST) -> Answer:
        """Keep the structure of a value; objects deeper than ``depth`` are kept as they are."""
        leaves, structure = tree_flatten(value)
        return cls(tuple(_kept(leaf, depth) for leaf in leaves), structure)

    def made(self) -> Any:
        """A value of the same structure, its tensors zero. Raises torch.OutOfMemoryError."""
        return tree_unflatten(
            [leaf.made() if isinstance(leaf, (Like, Hollow)) else leaf for leaf in self.leaves], self.structure
        )


class Answers:
    """The answers of one watched request: by component and entry, in the order of calls."""

    def __init__(self) -> None:
        """Nothing has answered yet."""
        self._known: dict[tuple[str, str], list[Answer]] = {}

    def add(self, component: str, entry: str, value: Any) -> None:
        """A call returned."""
        self._known.setdefault((component, entry), []).append(Answer.of(value))

    def find(self, component: str, entry: str, call: int) -> Answer | None:
        """What call number ``call`` of an entry returned; the last one that is known, if there were fewer."""
        known = self._known.get((component, entry))
        return known[min(call, len(known) - 1)] if known else None

    @contextmanager
    def heard(self, modules: Mapping[str, torch.nn.Module]) -> Iterator[None]:
        """Hear every entry of these components: hooks at their roots, and wrappers of their methods."""
        with ExitStack() as undo:
            for name, module in modules.items():
                undo.callback(module.register_forward_hook(self._listener(name)).remove)
                for method, original in methods_of(module):
                    undo.enter_context(replaced(module, method, self._wrapper(name, method, original)))
            yield

    def _listener(self, component: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: self.add(component, "forward", output)

    def _wrapper(self, component: str, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def entry(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            self.add(component, method, value)
            return value

        return entry


def methods_of(module: torch.nn.Module) -> list[tuple[str, Callable[..., Any]]]:
    """The entries of a component besides ``forward``, as they are now."""
    found = [(method, getattr(module, method, None)) for method in METHODS]
    return [(method, each) for method, each in found if callable(each) and not isinstance(each, torch.nn.Module)]


@contextmanager
def replaced(module: torch.nn.Module, attribute: str, value: Any) -> Iterator[None]:
    """An attribute of the instance is another one for a while."""
    missing = object()
    before = module.__dict__.get(attribute, missing)
    module.__dict__[attribute] = value
    try:
        yield
    finally:
        if before is missing:
            del module.__dict__[attribute]
        else:
            module.__dict__[attribute] = before


def _kept(leaf: Any, depth: int) -> Any:
    if isinstance(leaf, torch.Tensor):
        return Like(leaf.shape, leaf.dtype, leaf.device)
    fields = getattr(leaf, "__dict__", None)
    if not fields or depth == 0 or isinstance(leaf, (type, torch.nn.Module)) or callable(leaf):
        return leaf
    shell = copy.copy(leaf)
    vars(shell).update(dict.fromkeys(fields))
    return Hollow(shell, {name: Answer.of(value, depth - 1) for name, value in fields.items()})
