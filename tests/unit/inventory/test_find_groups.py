"""Repeated layers are found by structure: outermost, at least four, nearly alike, never nested."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.inventory.layers import find_groups, loose_names
from stowplan_agent.inventory.tensors import TensorInfo, packed_bytes


def tensor(*shape: int, dtype: str = "F32") -> TensorInfo:
    return TensorInfo(shape, dtype, prod(shape) * (2 if dtype == "BF16" else 4))


def stack(prefix: str, count: int, **parts: TensorInfo) -> dict[str, TensorInfo]:
    return {f"{prefix}.{index}.{part}": info for index in range(count) for part, info in parts.items()}


BIG, SMALL = tensor(16, 16), tensor(16)
FLUX = stack("double", 4, q=BIG, k=BIG) | stack("single", 8, q=BIG)
T5 = {"shared.weight": BIG, "encoder.block.0.table": tensor(4, 4)} | stack("encoder.block", 4, q=BIG, k=BIG)
NESTED = {f"blocks.{i}.experts.{j}.w": BIG for i in range(5) for j in range(6)}
INNER = {f"up.{i}.resnets.{j}.w": tensor(8 + i, 16) for i in range(4) for j in range(5)}
CASES = {
    "two stacks": (FLUX, {"double": 4, "single": 8}),
    "one more table in the first layer": (T5, {"encoder.block": 4}),
    "three layers are too few": (stack("blocks", 3, q=BIG), {}),
    "a gap in the indices": ({k: v for k, v in stack("blocks", 6, q=BIG).items() if ".2." not in k}, {}),
    "indices that do not begin at 0": ({k: v for k, v in stack("b", 6, q=BIG).items() if ".0." not in k}, {}),
    "an index with a leading zero": ({f"b.0{i}.q": BIG for i in range(4)}, {}),
    "other shapes": ({f"up.{i}.w": tensor(8 * (i + 1), 16) for i in range(4)}, {}),
    "other dtypes": ({f"b.{i}.w": tensor(8, 8, dtype="BF16" if i == 3 else "F32") for i in range(4)}, {}),
    "layers of layers are one group": (NESTED, {"blocks": 5}),
    "unlike outer stages with alike inner layers": (INNER, {f"up.{i}.resnets": 5 for i in range(4)}),
    "a list of parameters is no stack": ({f"tokens.{i}": BIG for i in range(8)}, {}),
    "a stack beside other members": (stack("m", 4, q=BIG) | {"m.norm.weight": SMALL}, {"m": 4}),
    "a stack beside another one": (stack("m", 4, q=BIG) | stack("m.x", 4, k=BIG), {"m": 4, "m.x": 4}),
    "eleven layers keep their order": (stack("b", 11, q=BIG), {"b": 11}),
    "nothing": ({}, {}),
    "empty layers": ({f"b.{i}.w": tensor(0) for i in range(4)}, {}),
}


@pytest.mark.parametrize(("tensors", "expected"), CASES.values(), ids=CASES.keys())
def test_groups(tensors: Mapping[str, TensorInfo], expected: Mapping[str, int]) -> None:
    groups = find_groups(tensors)
    assert {group.name: len(group.layers) for group in groups} == expected
    for group in groups:
        for index, layer in enumerate(group.layers):
            assert layer == tuple(name for name in tensors if name.startswith(f"{group.name}.{index}."))


@pytest.mark.parametrize(("extra", "qualifies"), [(28, True), (29, False)])
def test_common_entries_must_be_nine_tenths_of_every_layer(extra: int, qualifies: bool) -> None:
    tensors = stack("b", 4, q=tensor(256)) | {"b.0.more": tensor(extra)}  # 256 of 284 is 90.1 %, of 285 is 89.8 %
    assert bool(find_groups(tensors)) is qualifies


def test_layer_bytes_are_packed_and_skip_names_that_are_counted_elsewhere() -> None:
    tensors = stack("b", 4, q=BIG, bias=tensor(3))
    (group,) = find_groups(tensors)
    assert group.layer_bytes(tensors) == (1024 + 256,) * 4
    assert group.layer_bytes({k: v for k, v in tensors.items() if k != "b.0.bias"}) == (1024, 1280, 1280, 1280)


@pytest.mark.parametrize(("sizes", "packed"), [([], 0), ([0], 0), ([1], 256), ([256], 256), ([257, 1], 768)])
def test_packed_bytes(sizes: list[int], packed: int) -> None:
    assert packed_bytes(sizes) == packed


SEGMENTS = st.sampled_from(["a", "b", "blocks", "0", "1", "2", "3", "4", "10", "weight"])
NAMES = st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join)
TENSORS = st.dictionaries(NAMES, st.sampled_from([BIG, SMALL, tensor(16, dtype="BF16"), tensor(0)]), max_size=60)


@given(TENSORS, st.integers(4, 6), st.randoms(use_true_random=False))
def test_every_tensor_is_in_one_layer_or_loose(tensors: dict[str, TensorInfo], count: int, random: object) -> None:
    tensors = tensors | stack("blocks.a", count, q=BIG, k=SMALL)
    groups = find_groups(tensors)
    grouped = [name for group in groups for layer in group.layers for name in layer]
    assert sorted(grouped + list(loose_names(tensors, groups))) == sorted(tensors)
    assert len(set(grouped)) == len(grouped)
    for group in groups:
        assert len(group.layers) >= 4
        assert not any(
            other.name.startswith(f"{group.name}.{i}.") for other in groups for i in range(len(group.layers))
        )


@given(st.permutations(list(T5 | FLUX | NESTED)))
def test_the_order_of_names_changes_no_layer(names: list[str]) -> None:
    tensors = T5 | FLUX | NESTED
    found = {
        group.name: [set(layer) for layer in group.layers] for group in find_groups({n: tensors[n] for n in names})
    }
    assert found == {group.name: [set(layer) for layer in group.layers] for group in find_groups(tensors)}


def test_a_name_of_great_depth_is_no_problem() -> None:
    assert find_groups({".".join(["a"] * 3000): BIG}) == ()
