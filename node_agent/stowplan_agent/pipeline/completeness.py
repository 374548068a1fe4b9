"""Is what was loaded what the checkpoint has? Neither library insists on it.

diffusers leaves a weight that the checkpoint lacks on the meta device, where the engine finds it. transformers fills it
with random numbers and says so in a warning: two pods of one checkpoint would then serve different pictures, each
bit-equal to itself. What it found missing is known to the function that words that warning, and to nothing that a
loaded model keeps. The other way round, a config that asks for fewer layers than the checkpoint has loads without a
word, runs, and is bit-equal to itself too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from stowplan_agent.inventory import Inventory


class LoadError(ValueError):
    """A checkpoint that cannot be loaded as it is. The message names it."""


@contextmanager
def missing_weights() -> Iterator[dict[str, list[str]]]:
    """Collect, by class, the names of the weights that models loaded within lacked. One load at a time."""
    from transformers import modeling_utils

    found: dict[str, list[str]] = {}
    report = modeling_utils.log_state_dict_report

    def heard(*args: Any, model: Any, loading_info: Any, **kwargs: Any) -> Any:
        if loading_info.missing_keys:
            found[type(model).__name__] = sorted(loading_info.missing_keys)
        return report(*args, model=model, loading_info=loading_info, **kwargs)

    modeling_utils.log_state_dict_report = heard
    try:
        yield found
    finally:
        modeling_utils.log_state_dict_report = report


def check_layers(found: Inventory, modules: Mapping[str, torch.nn.Module]) -> None:
    """Compare stacks of layers on disk and in the loaded modules. Raises `LoadError` where their lengths differ.

    Stacks that a class does not have at all (the decoder, where an encoder is loaded from a whole T5) are left alone.
    """
    for component in found.components:
        for group in component.groups:
            loaded, stored = _layers_of(modules[component.name], group.name), len(group.layer_bytes)
            if loaded is not None and loaded != stored:
                raise LoadError(
                    f"component {component.name}: the checkpoint has {stored} layers in {group.name} and its "
                    f"config.json makes {loaded}; correct the number of layers in the config"
                )


def _layers_of(module: torch.nn.Module, group: str) -> int | None:
    try:
        return len(list(module.get_submodule(group).children()))
    except AttributeError:
        return None
