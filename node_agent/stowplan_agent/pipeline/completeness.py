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

from stowplan_agent.inventory import GroupInventory, Inventory, LayerShapes, alike, stacks_of


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

    A stack goes by its name or, where transformers renames it on loading, by what is in its layers. Stacks that a
    class does not have at all (the decoder, where an encoder is loaded from a whole T5) are left alone. Only shapes are
    looked at: conversions of these tensors may still be put off.
    """
    for component in found.components:
        stacks = _stacks(modules[component.name])
        if (differing := differing_stack(component.groups, stacks)) is not None:
            group, name = differing
            place = "" if name == group.name else f" in {name}"
            raise LoadError(
                f"component {component.name}: the checkpoint has {len(group.layer_bytes)} layers in {group.name} and "
                f"its config.json makes {len(stacks[name])}{place}; correct the number of layers in the config"
            )


def differing_stack(
    groups: tuple[GroupInventory, ...], stacks: Mapping[str, tuple[LayerShapes, ...]]
) -> tuple[GroupInventory, str] | None:
    """A stack of the checkpoint, and the name of the loaded one that stands for it and has another length.

    Renamed stacks that are alike and of one length are paired first, so that two encoders of one shape, of which a
    class has only one, are no difference.
    """
    known = {group.name for group in groups}
    for group in groups:
        if group.name in stacks and len(stacks[group.name]) != len(group.layer_bytes):
            return group, group.name
    free = {name: layers for name, layers in stacks.items() if not _is_within(name, known)}
    unpaired: list[GroupInventory] = []
    for group in (group for group in groups if group.name not in stacks):
        twins = (name for name in _renamed(group, free) if len(free[name]) == len(group.layer_bytes))
        if (twin := next(twins, None)) is not None:
            del free[twin]
        else:
            unpaired.append(group)
    return next(((group, name) for group in unpaired for name in _renamed(group, free)), None)


def _renamed(group: GroupInventory, stacks: Mapping[str, tuple[LayerShapes, ...]]) -> Iterator[str]:
    """The stacks that may be this one: of layers alike, or of none and with the same last name."""
    for name, layers in stacks.items():
        same = all(alike(layer, group.common) for layer in layers)
        if same and (layers or name.rpartition(".")[2] == group.name.rpartition(".")[2]):
            yield name


def _is_within(name: str, groups: set[str]) -> bool:
    return any(name == group or name.startswith(f"{group}.") for group in groups)


def _stacks(module: torch.nn.Module) -> dict[str, tuple[LayerShapes, ...]]:
    """The stacks of a loaded module, also those of no layers, which no tensor tells of."""
    empty: dict[str, tuple[LayerShapes, ...]] = {
        name: () for name, part in module.named_modules() if isinstance(part, torch.nn.ModuleList) and len(part) == 0
    }
    state = module.state_dict(keep_vars=True)
    shapes = {name: tuple(value.shape) for name, value in state.items() if isinstance(value, torch.Tensor)}
    return stacks_of(shapes) | empty
