"""The inventory of what loading will give, byte for byte, before a weight is read: groups by the modules' own names.

The rule by which tensors belong to layers is that of the weights engine (`weights.adoption`): a parameter belongs to a
layer when all names that lead to it are inside that one layer; all else is loose, and so is every buffer. So these
numbers are those of the record to come, and of the placements that are made for it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from stowplan_agent.inventory.blocks import Block, blocks_of, own_parameters
from stowplan_agent.inventory.checkpoint import Checkpoint, CheckpointComponent
from stowplan_agent.inventory.components import ComponentInventory, GroupInventory, Inventory, take_inventory
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.layers import find_groups
from stowplan_agent.inventory.stacks import stacks_of
from stowplan_agent.inventory.tensors import packed_bytes

if TYPE_CHECKING:
    import torch


def inventory_as_loaded(checkpoint: Checkpoint, dtype: str) -> Inventory:
    """The inventory of ``checkpoint`` as its modules will hold it in ``dtype``; needs torch and the model libraries.

    A component whose class cannot be built from its config alone is counted from its headers, and its ``uncertain``
    says why. Raises `InventoryError` for another dtype and for weights that the checkpoint lacks, and
    ``ModuleNotFoundError`` in the bare install.
    """
    counted = take_inventory(checkpoint, dtype)
    parts = zip(checkpoint.weighted, counted.components, strict=True)
    return replace(counted, components=tuple(_built(part, by_headers, dtype) for part, by_headers in parts))


def describe_module(part: CheckpointComponent, module: torch.nn.Module) -> ComponentInventory:
    """What ``module`` holds, packed as the engine packs it. Its tensors may be on any device, meta included."""
    parameters = own_parameters(module)
    groups = find_groups(parameters)
    units: dict[str, list[int]] = {
        f"{group.name}.{index}.": [] for group in groups for index in range(len(group.layers))
    }
    loose: list[int] = []
    by_dtype: defaultdict[str, int] = defaultdict(int)
    blocks = blocks_of(module)
    for block in blocks:
        units.get(_layer_of(block, units) or "", loose).append(block.nbytes)
        by_dtype[block.dtype] += block.nbytes
    stacks = stacks_of({name: info.shape for name, info in parameters.items()})
    return ComponentInventory(
        name=part.name,
        class_name=part.class_name,
        library=part.library,
        disk_bytes=sum(header.file_bytes for header in part.headers),
        tensor_bytes=sum(block.nbytes for block in blocks),
        loose_bytes=packed_bytes(loose),
        groups=tuple(
            GroupInventory(
                group.name,
                tuple(packed_bytes(units[f"{group.name}.{index}."]) for index in range(len(group.layers))),
                frozenset.intersection(*stacks[group.name]),
            )
            for group in groups
        ),
        dtype_bytes=dict(by_dtype),
        tied=tuple(name for block in blocks for name in block.tied),
        buffer_bytes=sum(block.nbytes for block in blocks if block.has_buffer),
    )


def _built(part: CheckpointComponent, by_headers: ComponentInventory, dtype: str) -> ComponentInventory:
    from stowplan_agent.inventory.skeletons import build_skeleton

    try:
        skeleton = build_skeleton(part, dtype)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "diffusers", "transformers", "accelerate"):
            raise
        return _uncertain(by_headers, error)
    except Exception as error:  # the libraries raise what they like; loading says it again, and stops there
        return _uncertain(by_headers, error)
    if skeleton.missing:
        raise InventoryError(
            f"component {part.name}: {len(skeleton.missing)} weights of {part.class_name} are not in the checkpoint, "
            f"{skeleton.missing[0]} among them; correct its config.json, or download the checkpoint again"
        )
    unused = sum(part.tensors[name].nbytes for name in skeleton.unused if name in part.tensors)
    return replace(describe_module(part, skeleton.module), unused_bytes=unused)


def _uncertain(by_headers: ComponentInventory, error: Exception) -> ComponentInventory:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return replace(by_headers, uncertain=f"{by_headers.class_name} cannot be built from its config ({reason})")


def _layer_of(block: Block, units: dict[str, list[int]]) -> str | None:
    """The one layer that all names of a block's parameters are in; None where there is none, or a buffer among them."""
    if block.has_buffer:
        return None
    found = {next((prefix for prefix in _prefixes(name) if prefix in units), None) for name in block.names}
    return found.pop() if len(found) == 1 else None


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) + "." for count in range(1, len(parts))]
