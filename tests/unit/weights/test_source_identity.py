"""Which bytes of which files a unit is to be loaded from, without reading one of them: the same in every process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from stowplan_agent.weights.adoption import survey
from stowplan_agent.weights.loading.files import MappedFiles
from stowplan_agent.weights.loading.source import Origin, UnitSource


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    save_file({"0.weight": torch.rand(64, 64), "1.weight": torch.rand(64, 64)}, path)
    return path


def loaded(path: Path) -> nn.Module:
    module = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    module.load_state_dict(load_file(path), assign=True)
    return module


def identity(module: nn.Module, origin: Origin | None = None) -> str | None:
    source = UnitSource(survey("part", module).blocks(None), origin or Origin(files=MappedFiles()))
    return source.identity()


def test_it_is_the_same_for_everyone_who_maps_the_same_bytes(file: Path) -> None:
    one, other = loaded(file), loaded(file)
    found = identity(one)
    assert found is not None and len(found) == 32
    assert identity(other) == found
    assert identity(one[0]) != identity(one[1])
    part = nn.Linear(64, 32, bias=False)
    part.weight = nn.Parameter(other[0].weight.data[32:])  # the half of a tensor, under the name of the whole
    assert identity(part) not in (None, identity(other[0]))


def test_a_file_that_is_written_anew_in_its_place_is_another(file: Path) -> None:
    before = identity(loaded(file))
    os.utime(file, ns=(0, 0))
    assert identity(loaded(file)) not in (None, before)


def test_there_is_none_where_any_weight_is_in_memory_alone(file: Path) -> None:
    module = loaded(file)
    module[1].weight = nn.Parameter(torch.rand(64, 64))
    assert identity(module) is None
    written = loaded(file)
    with torch.no_grad():
        written[0].weight.add_(1)  # a page that was written to is no longer the file's
    assert identity(written) is None


def test_what_is_converted_on_the_way_is_not_what_the_file_has(file: Path) -> None:
    module, source = loaded(file), loaded(file)
    converted = {
        own.weight.data.untyped_storage().data_ptr(): own.weight.data for own in source if isinstance(own, nn.Linear)
    }
    found = set()
    for dtype in (torch.bfloat16, torch.float16):
        for own, of in zip(module, source, strict=True):
            own.weight = nn.Parameter(torch.empty(64, 64, dtype=dtype))
            converted[own.weight.data.untyped_storage().data_ptr()] = of.weight.data
        origin = Origin(lambda storage: converted.get(storage.data_ptr()), MappedFiles())
        found.add(identity(module, origin))
    assert None not in found and len(found | {identity(source)}) == 3
