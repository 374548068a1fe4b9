"""Taking components over: which tensors make up which unit.

Groups of layers are found by the same rule as in the checkpoint's headers (`inventory.layers`). A tensor belongs to a
layer's unit if that layer alone uses it: it is a parameter, every name for it (and for whatever overlaps it in memory)
is inside that one layer, and the module that holds it is reached through that layer only. All else is loose: parameters
outside the layers, whatever is tied or shared across layers, and every buffer, since a forward pass may change a buffer
and a change must survive a layer's leaving the device. Nothing is changed here: `survey` looks and may refuse, and what
`take_over` makes moves with its first entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.inventory.layers import find_groups
from stowplan_agent.inventory.tensors import TensorInfo
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.fixed import FixedComponent, Modules, why_fixed
from stowplan_agent.weights.keyed_units import UnitKey
from stowplan_agent.weights.layout import Block, Place, blocks
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.source import IN_MEMORY, Origin
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_agent.weights.unit import Unit

Users = dict[torch.nn.Module, set[UnitKey]]
"""For each inner module the layers that it is reached through, and None where it is reached around them."""


class AdoptionError(ValueError):
    """A component that the engine cannot manage. The message names it and says why."""


@dataclass(frozen=True)
class Survey:
    """What belongs where in one component. Nothing has been changed yet."""

    name: str
    module: torch.nn.Module
    places: Mapping[str, Place]
    """By full name; a tensor that has several names is here several times."""
    loose: tuple[Block, ...] = ()
    groups: Mapping[str, tuple[tuple[Block, ...], ...]] = field(default_factory=dict)
    fixed: str | None = None
    """Why the component cannot be moved, if it cannot; it has no blocks then."""

    def blocks(self, key: UnitKey) -> tuple[Block, ...]:
        """What belongs to one unit."""
        return self.loose if key is None else self.groups[key[0]][key[1]]


def survey(name: str, module: torch.nn.Module, lengths: Mapping[str, int] | None = None) -> Survey:
    """Sort a component's tensors into units.

    ``lengths`` (group to number of layers) are the groups, if they were found before; layers that were alike then may
    differ now. Raises `AdoptionError` for what has no weights yet, or another mover of them.
    """
    modules = _modules(module)
    _check_hooks(name, modules)
    places = dict(_places(name, modules))
    if (reason := why_fixed(modules, places)) is not None:
        return Survey(name, module, places, fixed=reason)
    if lengths is None:
        tensors = {key: _info(place.tensor) for key, place in places.items() if not place.is_buffer}
        lengths = {group.name: len(group.layers) for group in find_groups(tensors)}
    layers = {
        (group, index): module.get_submodule(f"{group}.{index}")
        for group, length in lengths.items()
        for index in range(length)
    }
    users = _users(module, layers)
    loose: list[Block] = []
    units: dict[UnitKey, list[Block]] = {key: [] for key in layers}
    for block in blocks(places.values()):
        keys: set[UnitKey] = set()
        for place in block.places:
            keys.update({None} if place.is_buffer else users[place.module])
        owner = keys.pop() if len(keys) == 1 else None
        (loose if owner is None else units[owner]).append(block)
    by_group = {
        group: tuple(tuple(units[group, index]) for index in range(length)) for group, length in lengths.items()
    }
    return Survey(name, module, places, tuple(loose), by_group)


def take_over(
    found: Survey,
    accelerator: Accelerator,
    ledger: Ledger,
    origin: Origin = IN_MEMORY,
    neighbours: Neighbours | None = None,
) -> ManagedComponent:
    """A component of units, which are still where the library left them: its first entry says where they go."""

    if found.fixed is not None:
        return FixedComponent(found.name, found.module, found.fixed, accelerator, ledger, origin.converted_from)

    def unit(members: tuple[Block, ...]) -> Unit:
        return Unit(found.name, members, accelerator, ledger, origin)

    groups = {group: tuple(unit(layer) for layer in layers) for group, layers in found.groups.items()}
    return ManagedComponent(found.name, found.module, unit(found.loose), groups, accelerator, ledger, neighbours)


def check_apart(surveys: Mapping[str, Survey]) -> None:
    """Refuse components that share a tensor: it could not be where both placements say. Raises `AdoptionError`."""
    holders: dict[int, str] = {}
    for name, found in surveys.items():
        for key, place in found.places.items():
            other = holders.setdefault(id(place.tensor), name)
            if other != name:
                raise AdoptionError(
                    f"components {other} and {name} share a tensor ({key}), which can be in one place only; "
                    f"load them with weights of their own"
                )


def _users(module: torch.nn.Module, layers: Mapping[tuple[str, int], torch.nn.Module]) -> Users:
    users: Users = {}
    for key, layer in layers.items():
        for inner in _modules(layer):
            users.setdefault(inner, set()).add(key)
    whole = set(layers.values())
    pending = [module]
    seen: set[torch.nn.Module] = set()
    while pending:
        inner = pending.pop()
        if inner in seen or inner in whole:
            continue
        seen.add(inner)
        users.setdefault(inner, set()).add(None)
        pending.extend(inner.children())
    return users


def _modules(module: torch.nn.Module) -> Modules:
    """As `torch.nn.Module.named_modules`, whose generators within generators take five times as long."""
    found: Modules = {}
    pending = [("", module)]
    while pending:
        path, inner = pending.pop()
        if inner in found:
            continue
        found[inner] = path
        prefix = path + "." if path else ""
        children = [(prefix + name, child) for name, child in inner._modules.items() if child is not None]
        pending.extend(reversed(children))
    return found


def _places(component: str, modules: Modules) -> Iterator[tuple[str, Place]]:
    for inner, path in modules.items():
        prefix = path + "." if path else ""
        for key, parameter in inner._parameters.items():
            if parameter is not None:
                _check_value(component, prefix, key, parameter)
                yield prefix + key, Place(inner, key, parameter, is_buffer=False)
        for key, buffer in inner._buffers.items():
            if buffer is not None:
                _check_value(component, prefix, key, buffer)
                yield prefix + key, Place(inner, key, buffer, is_buffer=True)


def _info(tensor: torch.Tensor) -> TensorInfo:
    return TensorInfo(tuple(tensor.shape), str(tensor.dtype), tensor.nbytes)


def _check_value(component: str, prefix: str, key: str, tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        raise AdoptionError(
            f"component {component}: tensor {prefix}{key} was left on the meta device by its loader; "
            f"the checkpoint lacks its value"
        )
    if isinstance(tensor, torch.nn.Parameter) and tensor.is_inference():
        raise AdoptionError(
            f"component {component}: tensor {prefix}{key} was made in inference mode and can never be written to; "
            f"load it outside that mode"
        )


def _check_hooks(component: str, modules: Modules) -> None:
    """Offload hooks of accelerate and diffusers move weights themselves: two movers would undo each other's work."""
    for inner, path in modules.items():
        # diffusers keeps a registry on every module that it once looked at; what counts is what is registered in it.
        # In the instance's own attributes: a module that lacks one looks for it among its tensors, too, and raises.
        registered = getattr(inner.__dict__.get("_diffusers_hook"), "hooks", {})
        movers = [hook for hook in registered if "offloading" in hook or "casting" in hook]
        if "_hf_hook" in inner.__dict__:
            movers.append("accelerate")
        if movers:
            raise AdoptionError(
                f"component {component}: {path or 'its root'} carries a hook of another mover of weights "
                f"({', '.join(movers)}); load the pipeline without device_map, offload or layerwise casting"
            )
