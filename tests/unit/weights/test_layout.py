"""Where tensors lie in a unit's buffer: every geometry keeps its shape, stride and value, every byte counts once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stowplan_agent.weights.layout import ALIGNMENT, Layout, Place, align, blocks, extent, lay_out
from stowplan_agent.weights.loading.source import UnitSource

MODULE = torch.nn.Module()


def places(tensors: Sequence[torch.Tensor]) -> list[Place]:
    return [Place(MODULE, str(index), tensor, is_buffer=False) for index, tensor in enumerate(tensors)]


def packed(tensors: Sequence[torch.Tensor]) -> tuple[Layout, dict[str, torch.Tensor]]:
    found = blocks(places(tensors))
    layout = lay_out(found)
    buffer = torch.zeros(layout.nbytes, dtype=torch.uint8)
    UnitSource(found).read(0, buffer)
    return layout, {view.place.name: view.of(buffer) for view in layout.views}


def check_kept(tensors: Sequence[torch.Tensor]) -> Layout:
    layout, views = packed(tensors)
    for index, tensor in enumerate(tensors):
        view = views[str(index)]
        assert (view.shape, view.stride(), view.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        assert torch.equal(view, tensor)
    assert layout.nbytes % ALIGNMENT == 0
    return layout


def storage(nbytes: int = 4096) -> torch.Tensor:
    return torch.arange(nbytes // 4, dtype=torch.float32)


BASE = storage()
CASES: dict[str, tuple[list[torch.Tensor], int]] = {
    "transposed": ([torch.rand(5, 3).t()], 256),
    "channels last": ([torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)], 512),
    "every second row of a wide one": ([torch.rand(8, 64)[::2, :3]], 1792),
    "expanded, stride 0": ([torch.arange(6.0).expand(4, 6)], 256),
    "a scalar": ([torch.tensor(3.5, dtype=torch.float64)], 256),
    "nothing": ([torch.empty(0, 3)], 0),
    "nothing beside something": ([torch.empty(0), torch.rand(65)], 512),
    "tied": ([BASE[:100], BASE[:100]], 512),
    "overlapping": ([BASE[:100], BASE[50:150], BASE[149:151]], 768),
    "views of one file that only touch": ([BASE[:64], BASE[64:128], BASE[128:192]], 768),
    "an inner one after a longer one": ([BASE[:200], BASE[10:20], BASE[190:220]], 1024),
    "bytes of another dtype": ([BASE[1:9], BASE.view(torch.int8)[3:5]], 256),
    "odd sizes": ([torch.ones(3, dtype=torch.bool), torch.ones(5).char(), torch.rand(2).to(torch.complex64)], 768),
    "narrow floats": ([torch.rand(4).bfloat16(), torch.rand(4).to(torch.float8_e4m3fn)], 512),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_geometry_and_values_are_kept_and_bytes_counted_once(name: str) -> None:
    tensors, nbytes = CASES[name]
    if "narrow" in name:  # float8 has no torch.equal
        layout, views = packed(tensors)
        assert all(
            torch.equal(views[str(index)].view(torch.uint8), tensor.view(torch.uint8))
            for index, tensor in enumerate(tensors)
        )
    else:
        layout = check_kept(tensors)
    assert layout.nbytes == nbytes


def test_tensors_that_share_bytes_still_share_them_after_packing() -> None:
    _, views = packed([BASE[:100], BASE[50:150]])
    views["0"][50] = -1
    assert views["1"][0] == -1


def test_a_tied_empty_tensor_is_one_block() -> None:
    empty = torch.empty(0)
    assert [len(block.places) for block in blocks(places([empty, empty, torch.empty(0)]))] == [2, 1]


def test_order_is_that_of_first_appearance() -> None:
    names = [[place.name for place in block.places] for block in blocks(places([BASE[50:60], BASE[:9], BASE[55:70]]))]
    assert names == [["0", "2"], ["1"]]


def test_packing_a_parameter_records_no_graph() -> None:
    weight = torch.nn.Parameter(torch.rand(4, 4))
    _, views = packed([weight])
    assert not views["0"].requires_grad


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    """Any positive-stride view of one of a few shared storages: offsets, steps, overlaps and all."""
    dtype = draw(st.sampled_from([torch.float32, torch.int16, torch.uint8, torch.float64]))
    base = POOL[draw(st.integers(0, len(POOL) - 1))].view(dtype)
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    stride = tuple(draw(st.integers(0, 9)) for _ in shape)
    room = base.numel() - extent(shape, stride)
    assume(room >= 0)
    return base.as_strided(shape, stride, draw(st.integers(0, room)))


POOL = [torch.randint(0, 99, (512,), dtype=torch.uint8) for _ in range(2)]


@settings(max_examples=200, deadline=None)
@given(st.lists(strided(), max_size=8))
def test_any_views_of_any_storages_are_kept(tensors: list[Any]) -> None:
    layout = check_kept(tensors)
    touched = {(tensor.untyped_storage()._cdata) for tensor in tensors}
    assert layout.nbytes <= sum(align(512) + ALIGNMENT * len(tensors) for _ in touched)
    for view in layout.views:
        assert view.offset % view.dtype.itemsize == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(strided(), max_size=8))
def test_blocks_partition_the_places_and_never_overlap(tensors: list[Any]) -> None:
    found = blocks(places(tensors))
    assert sorted(int(place.name) for block in found for place in block.places) == list(range(len(tensors)))
    spans = sorted(
        (block.places[0].tensor.untyped_storage()._cdata, block.start, block.end)
        for block in found
        if block.end > block.start
    )
    for (left, _, end), (right, start, _) in pairwise(spans):
        # A block of several dtypes may start a few bytes early, to stay aligned to its widest element.
        assert left != right or end <= start + 7
