"""Changing weights through the modules that wrap them, PEFT's tuner layers, without knowing PEFT.

A tuner is a module around a ``base_layer`` with a ``merge`` and an ``unmerge`` that write into the base layer's
weights. While a rewrite lasts, both are preceded, on the instance, by bringing the weights to the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import torch

from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.rewriting.workbench import BenchKey, Workbench

METHODS: Final = ("merge", "unmerge")


@contextmanager
def on_bench(
    components: Mapping[str, ManagedComponent],
    bench: Workbench,
    running: Callable[[], AbstractContextManager[None]],
) -> Iterator[None]:
    """Within it, tuners that are there at its beginning write into weights on the bench, as operations of the device.

    A component's ``to`` moves nothing meanwhile: adapters of text encoders are loaded with a last
    ``encoder.to(encoder.device)``, and that device is the one of some parameter.
    """
    owners: dict[int, BenchKey] = {
        id(view.place.tensor): (name, key)
        for name, component in components.items()
        for key, unit in component.items()
        for view, _ in unit.bound()
    }
    found = [module for component in components.values() for module in component.module.modules() if _is_tuner(module)]
    with ExitStack() as stack:
        for tuner in dict.fromkeys(found):
            keys = {owners[id(tensor)] for tensor in [*tuner.parameters(), *tuner.buffers()] if id(tensor) in owners}
            for method in METHODS:
                stack.enter_context(_instead(tuner, method, _brought(getattr(tuner, method), keys, bench, running)))
        for component in components.values():
            stack.enter_context(_instead(component.module, "to", _staying(component.module.to)))
        yield
        for tuner in found:
            # A tuner that is switched off while fused unmerges itself in its next forward pass: in a ring's slot, which
            # would be lost with the pass.
            if getattr(tuner, "merged", False) is True and getattr(tuner, "disable_adapters", False) is True:
                tuner.unmerge()  # type: ignore[operator]
        bench.put_back()


def _is_tuner(module: torch.nn.Module) -> bool:
    has_base = isinstance(getattr(module, "base_layer", None), torch.nn.Module)
    return has_base and all(callable(getattr(module, method, None)) for method in METHODS)


def _brought(
    original: Callable[..., Any],
    keys: set[BenchKey],
    bench: Workbench,
    running: Callable[[], AbstractContextManager[None]],
) -> Callable[..., Any]:
    @functools.wraps(original)  # diffusers looks at the signature
    def changed(*args: Any, **kwargs: Any) -> Any:
        bench.bring(keys)
        with running():
            return original(*args, **kwargs)

    return changed


def _staying(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def to(*args: Any, **kwargs: Any) -> Any:
        _, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        return original(dtype=dtype, **({} if memory_format is None else {"memory_format": memory_format}))

    return to


@contextmanager
def _instead(module: torch.nn.Module, method: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """A method of one instance is another for the time being."""
    own = vars(module)
    missing = object()
    before = own.get(method, missing)
    own[method] = replacement
    try:
        yield
    finally:
        if before is missing:
            own.pop(method, None)
        else:
            own[method] = before
