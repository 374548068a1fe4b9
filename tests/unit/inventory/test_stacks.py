"""A stack of layers is known again by what is in its layers, whatever its name and its length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.inventory.layers import find_groups
from stowplan_agent.inventory.stacks import LayerShapes, alike, stacks_of
from stowplan_agent.inventory.tensors import TensorInfo


def test_stacks_of_any_length_in_the_order_of_their_indices() -> None:
    shapes = {f"a.layers.{n}.q.weight": (4, 4) for n in (10, 0, 2)} | {"a.layers.2.norm": (4,), "b.0.c": (1,)}
    q = ("q.weight", (4, 4))
    assert stacks_of(shapes) == {
        "a.layers": (frozenset({q}), frozenset({q, ("norm", (4,))}), frozenset({q})),
        "b": (frozenset({("c", (1,))}),),
    }


def test_nested_stacks_are_stacks_too() -> None:
    stacks = stacks_of({f"up.{n}.blocks.{m}.w": (2,) for n in range(2) for m in range(3)})
    assert {name: len(layers) for name, layers in stacks.items()} == {"up": 2, "up.0.blocks": 3, "up.1.blocks": 3}


def test_what_is_no_stack() -> None:
    assert stacks_of({"0.weight": (1,), "list.0": (1,), "conv2d.weight": (1,), "a.b": ()}) == {}


def layer(size: int, *others: tuple[str, tuple[int, ...]]) -> LayerShapes:
    return frozenset({("w", (size,)), *others})


def test_layers_are_alike_by_elements_and_not_by_how_many_tensors() -> None:
    assert alike(layer(90), layer(90, ("table", (10,))))
    assert not alike(layer(89), layer(89, ("table", (11,))))
    assert not alike(layer(89, ("table", (11,))), layer(89))
    assert not alike(layer(8), layer(9))
    assert not alike(frozenset(), frozenset())


NAMES = st.dictionaries(st.sampled_from(["q", "k", "norm", "mlp.up", "mlp.down"]), st.integers(1, 50), min_size=1)


@given(NAMES, st.integers(4, 9), st.integers(1, 9))
def test_a_group_is_known_again_under_another_name_and_length(parts: dict[str, int], stored: int, made: int) -> None:
    files = {f"model.layers.{n}.{name}": (size,) for n in range(stored) for name, size in parts.items()}
    (group,) = find_groups({name: TensorInfo(shape, "F32", shape[0] * 4) for name, shape in files.items()})
    common = frozenset.intersection(*stacks_of(files)[group.name])
    loaded = stacks_of({f"model.lm.layers.{n}.{name}": (size,) for n in range(made) for name, size in parts.items()})
    assert all(alike(one, common) for one in loaded["model.lm.layers"])
    assert len(loaded["model.lm.layers"]) == made
