"""Find the repeated layers of a model from the names of its tensors.

A placement keeps some layers and streams the others, so it needs stacks of layers that are alike. Nothing is declared
and no list of names is kept: a stack is a family ``PREFIX.0.``, ``PREFIX.1.``, ... of names whose members have nearly
the same tensors. The same function reads safetensors headers and ``named_parameters()`` of a loaded module, so what was
predicted and what was loaded agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stowplan_agent.inventory.tensors import TensorInfo, packed_bytes

FEWEST_LAYERS: Final = 4
"""With fewer layers than this a ring of two slots holds half of the stack: nothing is gained over moving it whole."""

COMMON_PERCENT: Final = 90
"""How much of every layer (percent of its bytes) must be common to all layers, by name, shape and dtype.

Not 100: the first block of T5 has one more table than the others.
"""

Entry = tuple[str, tuple[int, ...], str]
"""Name within the layer, shape, dtype."""


@dataclass(frozen=True, slots=True)
class Group:
    """A stack of repeated layers, in the order of their indices; each layer is the full names of its tensors."""

    name: str
    layers: tuple[tuple[str, ...], ...]

    def layer_bytes(self, tensors: Mapping[str, TensorInfo]) -> tuple[int, ...]:
        """Packed bytes of each layer. Names absent from ``tensors`` (tied, counted elsewhere) add nothing."""
        sizes = ([tensors[name].nbytes for name in layer if name in tensors] for layer in self.layers)
        return tuple(packed_bytes(layer) for layer in sizes)


def find_groups(tensors: Mapping[str, TensorInfo]) -> tuple[Group, ...]:
    """The outermost stacks of at least `FEWEST_LAYERS` alike layers, in the order of ``tensors``; never nested.

    A family qualifies when its indices are 0 to n-1 and the entries common to all layers are at least
    `COMMON_PERCENT` of the bytes of each. Where the outermost family does not, its members are searched.
    """
    found: list[Group] = []
    pending: list[tuple[str, dict[str, None]]] = [("", dict.fromkeys(tensors))]
    while pending:  # depth first, in order; no recursion, for names come from files and may be of any depth
        prefix, names = pending.pop()
        inside: dict[str, dict[str, None]] = {}
        for name in names:
            head, dot, _ = name[len(prefix) :].partition(".")
            if dot:  # a tensor of this module itself is no layer
                inside.setdefault(head, {})[name] = None
        layers = _stack(prefix, inside, tensors) if prefix else None
        if layers is not None:
            found.append(Group(prefix[:-1], layers))
        deeper = [head for head in inside if layers is None or not _is_index(head)]
        pending.extend((f"{prefix}{head}.", inside[head]) for head in reversed(deeper))
    return tuple(found)


def loose_names(tensors: Mapping[str, TensorInfo], groups: tuple[Group, ...]) -> tuple[str, ...]:
    """The names of ``tensors`` that belong to no layer of ``groups``, in order."""
    grouped = {name for group in groups for layer in group.layers for name in layer}
    return tuple(name for name in tensors if name not in grouped)


def _stack(
    prefix: str, inside: Mapping[str, Mapping[str, None]], tensors: Mapping[str, TensorInfo]
) -> tuple[tuple[str, ...], ...] | None:
    indices = sorted((head for head in inside if _is_index(head)), key=int)
    count = len(indices)
    if count < FEWEST_LAYERS or indices != [str(number) for number in range(count)]:
        return None
    layers = [{_entry(prefix, head, name, tensors): name for name in inside[head]} for head in indices]
    common = set(layers[0]).intersection(*layers)
    shared = sum(tensors[layers[0][entry]].nbytes for entry in common)
    largest = max(sum(tensors[name].nbytes for name in layer.values()) for layer in layers)
    if shared == 0 or shared * 100 < largest * COMMON_PERCENT:
        return None
    return tuple(tuple(layer.values()) for layer in layers)


def _entry(prefix: str, head: str, name: str, tensors: Mapping[str, TensorInfo]) -> Entry:
    info = tensors[name]
    return name[len(prefix) + len(head) + 1 :], info.shape, info.dtype


def _is_index(head: str) -> bool:
    return head.isascii() and head.isdigit()
