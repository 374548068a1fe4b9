"""The inventory: every component of a checkpoint with its layers and bytes, at the precision it will be loaded in.

It is the first answer the agent gives (RUNTIME.md, phase Inventory). This is the inventory by headers alone, in
milliseconds and without torch. What headers cannot tell: buffers that are computed and not saved, modules that a class
keeps in float32, tensors that it does not use, and names that transformers changes on loading (Qwen2.5-VL:
``model.layers`` to ``model.language_model.layers``). `as_loaded` knows all of these, from configs and classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stowplan_agent.inventory.checkpoint import Checkpoint, CheckpointComponent
from stowplan_agent.inventory.fingerprint import fingerprint
from stowplan_agent.inventory.layers import find_groups, loose_names
from stowplan_agent.inventory.stacks import LayerShapes, stacks_of
from stowplan_agent.inventory.tensors import TensorInfo, check_dtype, loaded, packed_bytes


@dataclass(frozen=True)
class GroupInventory:
    """A stack of repeated layers: its name, and packed, aligned bytes, one number a layer."""

    name: str
    layer_bytes: tuple[int, ...]
    common: LayerShapes = field(default=frozenset(), compare=False, repr=False)
    """What all its layers have: by this a loaded module's stack of another name is recognised."""


@dataclass(frozen=True)
class ComponentInventory:
    """One component. All sizes are bytes; those after ``disk_bytes`` are at the precision of loading."""

    name: str
    class_name: str
    library: str
    disk_bytes: int
    tensor_bytes: int
    """The exact sum over storages, each once, without alignment."""
    loose_bytes: int
    """Packed bytes outside repeated layers."""
    groups: tuple[GroupInventory, ...] = ()
    dtype_bytes: Mapping[str, int] = field(default_factory=dict)
    """Exact bytes by the safetensors name of the dtype, as loaded."""
    tied: tuple[str, ...] = ()
    """Names that share the storage of another and are counted there."""
    buffer_bytes: int = 0
    """Exact bytes of buffers, part of the loose ones. By headers alone those that are saved count as weights."""
    unused_bytes: int = 0
    """Bytes on disk of tensors that the class does not take: never loaded, and in no other number.

    0 by headers alone, and for what its library knows that the class leaves out (the decoder of a whole T5)."""
    uncertain: str | None = None
    """Why headers alone were counted, where the modules were asked for and could not be built."""

    @property
    def total_bytes(self) -> int:
        """Packed bytes of the whole component: what it takes to be resident."""
        return self.loose_bytes + sum(sum(group.layer_bytes) for group in self.groups)


@dataclass(frozen=True)
class Inventory:
    """What a checkpoint holds, before a weight is touched."""

    model: str
    pipeline: str
    fingerprint: str
    dtype: str
    components: tuple[ComponentInventory, ...]

    @property
    def total_bytes(self) -> int:
        """Packed bytes of all components."""
        return sum(component.total_bytes for component in self.components)


def take_inventory(checkpoint: Checkpoint, dtype: str) -> Inventory:
    """The inventory of ``checkpoint`` by its headers, as if all floats were loaded in ``dtype``.

    ``dtype`` is ``bfloat16``, ``float16`` or ``float32``. Raises `InventoryError` for another one.
    """
    target = check_dtype(dtype)
    components = tuple(_take(part, target) for part in checkpoint.weighted)
    return Inventory(checkpoint.name, checkpoint.pipeline, fingerprint(checkpoint), dtype, components)


def _take(part: CheckpointComponent, target: str) -> ComponentInventory:
    tied = tied_names(part.tensors, part.config) if part.library == "transformers" else ()
    tensors = {name: loaded(info, target) for name, info in part.tensors.items() if name not in tied}
    groups = find_groups(tensors)
    stacks = stacks_of({name: info.shape for name, info in tensors.items()})
    by_dtype: dict[str, int] = {}
    for info in tensors.values():
        by_dtype[info.dtype] = by_dtype.get(info.dtype, 0) + info.nbytes
    return ComponentInventory(
        name=part.name,
        class_name=part.class_name,
        library=part.library,
        disk_bytes=sum(header.file_bytes for header in part.headers),
        tensor_bytes=sum(by_dtype.values()),
        loose_bytes=packed_bytes(tensors[name].nbytes for name in loose_names(tensors, groups)),
        groups=tuple(
            GroupInventory(group.name, group.layer_bytes(tensors), frozenset.intersection(*stacks[group.name]))
            for group in groups
        ),
        dtype_bytes=by_dtype,
        tied=tied,
    )


def tied_names(tensors: Mapping[str, TensorInfo], config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of vocabulary tables that share the storage of the first one, as far as files can tell.

    transformers ties every table of ``vocab_size`` rows unless ``tie_word_embeddings`` is false, and saves it once; an
    older or converted checkpoint may hold it twice. Equal shape and dtype are required.
    """
    rows = config.get("vocab_size")
    if type(rows) is not int or config.get("tie_word_embeddings", True) is not True:
        return ()
    first: dict[TensorInfo, str] = {}
    tables = [(name, info) for name, info in tensors.items() if len(info.shape) == 2 and info.shape[0] == rows]
    return tuple(name for name, info in tables if first.setdefault(info, name) != name)
