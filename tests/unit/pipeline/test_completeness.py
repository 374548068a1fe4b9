"""Which stack of a loaded module stands for which of the checkpoint, and which lengths are a difference."""

from __future__ import annotations

import pytest

from stowplan_agent.inventory import GroupInventory, LayerShapes
from stowplan_agent.pipeline.completeness import differing_stack

WIDE: LayerShapes = frozenset({("attn.weight", (64, 64)), ("norm.weight", (64,))})
NARROW: LayerShapes = frozenset({("attn.weight", (32, 32)), ("norm.weight", (32,))})
Stacks = dict[str, tuple[LayerShapes, ...]]


def group(name: str, layers: int, layer: LayerShapes = WIDE) -> GroupInventory:
    return GroupInventory(name, (1,) * layers, layer)


@pytest.mark.parametrize(
    ("groups", "stacks", "differing"),
    [
        pytest.param([group("layers", 4)], {"layers": (WIDE,) * 4}, None, id="as it should be"),
        pytest.param([group("layers", 4)], {"layers": (WIDE,) * 3}, ("layers", "layers"), id="fewer"),
        pytest.param([group("layers", 4)], {"layers": (WIDE,) * 5}, ("layers", "layers"), id="more"),
        pytest.param([group("layers", 4)], {"layers": ()}, ("layers", "layers"), id="none"),
        pytest.param([group("layers", 4)], {"lm.layers": (WIDE,) * 4}, None, id="renamed"),
        pytest.param([group("layers", 4)], {"lm.layers": (WIDE,) * 3}, ("layers", "lm.layers"), id="renamed, fewer"),
        pytest.param([group("layers", 4)], {"lm.layers": (WIDE,) * 5}, ("layers", "lm.layers"), id="renamed, more"),
        pytest.param([group("layers", 4)], {"lm.layers": (WIDE,)}, ("layers", "lm.layers"), id="renamed, one"),
        pytest.param([group("layers", 4)], {"lm.layers": ()}, ("layers", "lm.layers"), id="renamed, none"),
        pytest.param([group("layers", 4)], {"lm.adapters": ()}, None, id="an empty list of something else"),
        pytest.param([group("decoder.block", 4)], {"encoder.layers": (NARROW,) * 3}, None, id="not in the class"),
        pytest.param(
            [group("encoder", 4), group("decoder", 6)], {"encoder": (WIDE,) * 4}, None, id="like one that is there"
        ),
        pytest.param(
            [group("decoder", 6), group("encoder", 4)], {"m.encoder": (WIDE,) * 4}, None, id="one of two, renamed"
        ),
        pytest.param(
            [group("decoder", 6), group("encoder", 4)],
            {"m.encoder": (WIDE,) * 4, "m.decoder": (WIDE,) * 5},
            ("decoder", "m.decoder"),
            id="two of one shape, renamed, one shorter",
        ),
        pytest.param(
            [group("layers", 4), group("visual.blocks", 4, NARROW)],
            {"lm.layers": (WIDE,) * 4, "m.visual.blocks": (NARROW,) * 2},
            ("visual.blocks", "m.visual.blocks"),
            id="two of two shapes, renamed, one shorter",
        ),
        pytest.param(
            [group("blocks", 4, NARROW), group("other", 6)],
            {"blocks": (NARROW,) * 4, "blocks.0.inner": (WIDE,) * 2},
            None,
            id="like something within a layer of another",
        ),
    ],
)
def test_differing_stack(groups: list[GroupInventory], stacks: Stacks, differing: tuple[str, str] | None) -> None:
    found = differing_stack(tuple(groups), stacks)
    assert (None if found is None else (found[0].name, found[1])) == differing
