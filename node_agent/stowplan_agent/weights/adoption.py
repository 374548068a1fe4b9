"""Taking a component over: which tensors make up which unit.

Groups of layers are found by the same rule as in the checkpoint's headers (`inventory.layers`). A layer's unit holds
its parameters; the loose unit holds the rest: parameters outside the layers, whatever is tied across units, and every
buffer, since a forward pass may change a buffer and a change must survive a layer's leaving the device.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.inventory.layers import find_groups
from stowplan_agent.inventory.tensors import TensorInfo
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.layout import Place, blocks
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.unit import Unit


class AdoptionError(ValueError):
    """A component that the engine cannot manage. The message names it and says why."""


def adopt(name: str, module: torch.nn.Module, accelerator: Accelerator, ledger: Ledger) -> ManagedComponent:
    """Pack a component's weights into host memory and manage them. Raises `AdoptionError`, changing nothing."""
    places = list(_places(name, module))
    layer_of: dict[torch.nn.Module, tuple[str, int]] = {}
    sizes: dict[str, int] = {}
    for group in find_groups(_tensors(module)):
        sizes[group.name] = len(group.layers)
        for index in range(len(group.layers)):
            for inner in module.get_submodule(f"{group.name}.{index}").modules():
                layer_of[inner] = (group.name, index)
    loose: list[list[Place]] = []
    layers: dict[str, list[list[list[Place]]]] = {group: [[] for _ in range(size)] for group, size in sizes.items()}
    for block in blocks(places):
        owners = {None if place.is_buffer else layer_of.get(place.module) for place in block}
        owner = owners.pop() if len(owners) == 1 else None
        if owner is None:
            loose.append(block)
        else:
            layers[owner[0]][owner[1]].append(block)
    return ManagedComponent(
        name,
        module,
        Unit(name, loose, accelerator, ledger),
        {group: tuple(Unit(name, unit, accelerator, ledger) for unit in units) for group, units in layers.items()},
        accelerator,
        ledger,
    )


def _places(name: str, module: torch.nn.Module) -> Iterator[Place]:
    for path, inner in module.named_modules():
        for key, parameter in inner._parameters.items():
            if parameter is not None:
                yield _checked(name, path, Place(inner, key, parameter, is_buffer=False))
        for key, buffer in inner._buffers.items():
            if buffer is not None:
                yield _checked(name, path, Place(inner, key, buffer, is_buffer=True))


def _checked(component: str, path: str, place: Place) -> Place:
    tensor = place.tensor
    where = f"component {component}: tensor {path + '.' if path else ''}{place.name}"
    if tensor.is_meta:
        raise AdoptionError(f"{where} was left on the meta device by its loader; the checkpoint lacks its value")
    if type(tensor.data) is not torch.Tensor or tensor.layout is not torch.strided:
        raise AdoptionError(
            f"{where} is a {type(tensor).__name__}, which cannot be packed; load the component in plain tensors"
        )
    return place


def _tensors(module: torch.nn.Module) -> dict[str, TensorInfo]:
    return {
        key: TensorInfo(tuple(value.shape), str(value.dtype), value.nbytes) for key, value in module.named_parameters()
    }
