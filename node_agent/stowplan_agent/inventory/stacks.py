"""Recognise a stack of layers under another name, by what is in a layer.

Names in files are not always names in modules: transformers renames some on loading, by tables in its code
(Qwen2.5-VL: ``model.layers`` becomes ``model.language_model.layers``). What is in a layer stays: names within it, and
shapes. Dtypes do not count, for loading converts them, and no value is ever read.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from stowplan_agent.inventory.layers import COMMON_PERCENT

LayerShapes = frozenset[tuple[str, tuple[int, ...]]]
"""The tensors of one layer: name within the layer, and shape."""


def stacks_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[LayerShapes, ...]]:
    """Every family ``NAME.0.``, ``NAME.1.``, ... of tensor names, in order of the indices; of any length, also nested.

    ``shapes`` are by the tensors' full names. Wider than `find_groups`, which asks what is worth streaming: a config
    that makes two layers of forty must be found too.
    """
    stacks: dict[str, dict[int, set[tuple[str, tuple[int, ...]]]]] = {}
    for full, shape in shapes.items():
        parts = full.split(".")
        for place in range(1, len(parts) - 1):
            if parts[place].isascii() and parts[place].isdigit():
                layers = stacks.setdefault(".".join(parts[:place]), {})
                layers.setdefault(int(parts[place]), set()).add((".".join(parts[place + 1 :]), shape))
    return {name: tuple(frozenset(layers[index]) for index in sorted(layers)) for name, layers in stacks.items()}


def alike(one: LayerShapes, other: LayerShapes) -> bool:
    """Whether two layers have `COMMON_PERCENT` of their elements in common: what makes layers of one model a group."""
    larger = max(_elements(one), _elements(other))
    return larger > 0 and _elements(one & other) * 100 >= larger * COMMON_PERCENT


def _elements(layer: LayerShapes) -> int:
    return sum(prod(shape) for _, shape in layer)
