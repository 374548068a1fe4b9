"""What the files promise is what loading gives: bytes, precisions, ties, buffers and layers, component by component."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from torch.testing._internal.two_tensor import TwoTensor
from transformers import CLIPConfig, T5Config, T5ForConditionalGeneration

from pipelines.tiny_requests import modules
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.inventory import (
    GroupInventory,
    Inventory,
    InventoryError,
    describe_module,
    inventory_as_loaded,
    read_checkpoint,
    take_inventory,
)
from stowplan_agent.inventory.checkpoint import CheckpointComponent
from stowplan_agent.inventory.skeletons import build_skeleton
from stowplan_agent.weights import WeightsEngine

ALL = ["tiny-wan", "tiny-wan-two-experts", "tiny-flux", "tiny-ltx", "tiny-image-to-video", "tiny-sdxl", "tiny-qwen"]


def loaded(folder: Path, dtype: str) -> dict[str, torch.nn.Module]:
    """The networks as diffusers loads them, weights and all."""
    return modules(DiffusionPipeline.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True))


def held(module: torch.nn.Module) -> int:
    """Bytes of all parameters and buffers, tied ones once: torch's own account, none of ours."""
    return sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])


def of(inventory: Inventory) -> dict[str, Any]:
    return {part.name: part for part in inventory.components}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ALL)
def test_inventory_equals_loaded_modules(name: str, dtype: str, write_tiny: Callable[[str], Path]) -> None:
    """Issue 6: byte for byte; and as the engine that takes the modules over packs them, name by name."""
    checkpoint = read_checkpoint(write_tiny(name))
    inventory = inventory_as_loaded(checkpoint, dtype)
    parts = loaded(checkpoint.path, dtype)
    assert [part.name for part in inventory.components] == [part.name for part in checkpoint.weighted]
    assert {part.name for part in inventory.components} == set(parts)
    for part, stored in zip(inventory.components, checkpoint.weighted, strict=True):
        assert part.uncertain is None
        assert part == describe_module(stored, parts[part.name])
        assert part.unused_bytes == 0
        assert part.tensor_bytes == sum(part.dtype_bytes.values()) == held(parts[part.name])
        assert part.buffer_bytes == sum(buffer.nbytes for buffer in parts[part.name].buffers())
    engine = WeightsEngine(EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 30)))
    try:
        engine.adopt(parts)
        for found in engine.describe():
            part = of(inventory)[found.name]
            if found.fixed is not None:  # stays as its library made it, in no buffer of ours
                assert (found.total_bytes(), found.groups) == (part.tensor_bytes, ())
                continue
            assert part.loose_bytes == found.loose_bytes
            assert {group.name: group.layer_bytes for group in part.groups} == {
                group.name: group.layer_bytes for group in found.groups
            }
    finally:
        engine.close()


@pytest.mark.parametrize(("name", "part"), [("tiny-wan", "transformer"), ("tiny-sdxl", "text_encoder")])
def test_buffers_that_are_in_no_file_are_counted(name: str, part: str, write_tiny: Callable[[str], Path]) -> None:
    checkpoint = read_checkpoint(write_tiny(name))
    exact, by_headers = (
        of(inventory_as_loaded(checkpoint, "float32"))[part],
        of(take_inventory(checkpoint, "float32"))[part],
    )
    assert exact.tensor_bytes - by_headers.tensor_bytes == exact.buffer_bytes > 0


def test_modules_that_a_class_keeps_in_float32_are_counted_so(tiny_wan: Path) -> None:
    """Wan's time embedder, norms and modulation tables, in each of its layers."""
    part = of(inventory_as_loaded(read_checkpoint(tiny_wan), "bfloat16"))["transformer"]
    assert part.dtype_bytes["F32"] > 0 and part.dtype_bytes["BF16"] > 0
    halved = of(take_inventory(read_checkpoint(tiny_wan), "bfloat16"))["transformer"]
    assert part.total_bytes > halved.total_bytes


def test_groups_have_the_names_of_the_modules(write_tiny: Callable[[str], Path]) -> None:
    """transformers renames Qwen2.5-VL on loading; a record and a placement say the new names."""
    part = of(inventory_as_loaded(read_checkpoint(write_tiny("tiny-qwen")), "float32"))["text_encoder"]
    assert [group.name for group in part.groups] == ["model.visual.blocks", "model.language_model.layers"]
    assert part.tied == ("lm_head.weight",)


def test_a_checkpoint_in_another_precision_is_counted_as_it_will_be(tiny_wan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    DiffusionPipeline.from_pretrained(tiny_wan, dtype=torch.bfloat16, local_files_only=True).save_pretrained(folder)
    half, full = (inventory_as_loaded(read_checkpoint(path), "bfloat16") for path in (folder, tiny_wan))
    assert [(part.name, part.dtype_bytes) for part in half.components] == [
        (part.name, part.dtype_bytes) for part in full.components
    ]
    assert half.components[1].disk_bytes < full.components[1].disk_bytes


def test_h1_an_encoder_of_any_name_is_built_and_counted(tiny_flux: Path, tmp_path: Path) -> None:
    """Found by its class, placed by the names of its modules."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_flux, folder)
    (folder / "text_encoder_2").rename(folder / "mllm")
    index = json.loads((folder / "model_index.json").read_text())
    index["mllm"] = index.pop("text_encoder_2")
    (folder / "model_index.json").write_text(json.dumps(index))
    found = of(inventory_as_loaded(read_checkpoint(folder), "bfloat16"))["mllm"]
    known = of(inventory_as_loaded(read_checkpoint(tiny_flux), "bfloat16"))["text_encoder_2"]
    assert found == replace(known, name="mllm") and found.uncertain is None


class Foo(torch.nn.Module):
    """No library's: four equal layers, a table that two names share, one layer that all share, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(32, 32, bias=False) for _ in range(4))
        self.table = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight
        self.shared = torch.nn.Linear(8, 8, bias=False)
        for part in self.parts:
            part.add_module("shared", self.shared)
        self.register_buffer("steps", torch.zeros(3), persistent=False)
        self.parts[1].register_buffer("scale", torch.zeros(5))


def test_h1_a_module_of_no_library_is_counted_as_the_engine_counts_it() -> None:
    part = CheckpointComponent("foo", "own", "Foo")
    found = describe_module(part, Foo())
    assert found.groups == (GroupInventory("parts", (4096,) * 4),)
    assert found.buffer_bytes == 12 + 20
    assert {"head.weight", "parts.3.shared.weight", "shared.weight"} <= set(found.tied)
    assert found.tensor_bytes == 4 * 4096 + 512 + 256 + 12 + 20
    engine = WeightsEngine(EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 20)))
    try:
        engine.adopt({"foo": Foo()})
        (counted,) = engine.describe()
        assert (counted.loose_bytes, counted.groups[0].layer_bytes) == (found.loose_bytes, found.groups[0].layer_bytes)
    finally:
        engine.close()


def test_h2_inner_bytes_of_a_wrapper_class_are_counted() -> None:
    module = torch.nn.Linear(8, 8, bias=False)
    module.weight = torch.nn.Parameter(TwoTensor(torch.zeros(8, 8), torch.zeros(8, 8)))
    found = describe_module(CheckpointComponent("foo", "own", "Linear"), module)
    assert found.tensor_bytes == found.loose_bytes == 512


@pytest.mark.parametrize(("component", "more"), [("transformer", "blocks.8."), ("text_encoder", "encoder.block.4.")])
def test_weights_that_the_files_lack_are_named_before_loading(
    component: str, more: str, tiny_wan: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "wan"
    shutil.copytree(tiny_wan, folder)
    config = folder / component / "config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps(settings | {"num_layers": settings["num_layers"] + 1}))
    with pytest.raises(
        InventoryError, match=rf"component {component}: \d+ weights of \w+ are not .* {re.escape(more)}"
    ):
        inventory_as_loaded(read_checkpoint(folder), "bfloat16")


def test_the_decoder_of_a_whole_t5_is_not_counted(tiny_flux: Path, tmp_path: Path) -> None:
    """By headers it would be: the pipeline takes the encoder alone."""
    folder = tmp_path / "flux"
    shutil.copytree(tiny_flux, folder)
    config = T5Config.from_pretrained(folder / "text_encoder_2", num_decoder_layers=4)
    T5ForConditionalGeneration(config).save_pretrained(folder / "text_encoder_2")
    whole, own = (of(inventory_as_loaded(read_checkpoint(path), "float32")) for path in (folder, tiny_flux))
    assert whole["text_encoder_2"].disk_bytes > own["text_encoder_2"].disk_bytes
    assert whole["text_encoder_2"].total_bytes == own["text_encoder_2"].total_bytes
    assert whole["text_encoder_2"].groups == own["text_encoder_2"].groups


def test_tensors_that_a_class_does_not_take_are_told(tiny_wan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wan"
    shutil.copytree(tiny_wan, folder)
    config = folder / "transformer" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_layers": 6}))
    fewer, whole = (of(inventory_as_loaded(read_checkpoint(path), "float32")) for path in (folder, tiny_wan))
    lost = whole["transformer"].tensor_bytes - fewer["transformer"].tensor_bytes
    assert fewer["transformer"].unused_bytes == lost > 0


@pytest.mark.parametrize(
    ("library", "class_name", "says"),
    [
        ("subprocess", "Popen", "diffusers.pipelines.subprocess has no class Popen"),
        ("diffusers", "DDIMScheduler", "DDIMScheduler is no model class of diffusers or transformers"),
        ("transformers", "NoSuchModel", "transformers has no class NoSuchModel"),
    ],
)
def test_an_index_imports_nothing_but_model_classes(library: str, class_name: str, says: str) -> None:
    with pytest.raises(LookupError, match=re.escape(says)):
        build_skeleton(CheckpointComponent("part", library, class_name), "float32")


def test_a_part_of_a_pipeline_of_diffusers_is_found() -> None:
    config = CLIPConfig(projection_dim=8, vision_config={"hidden_size": 48, "num_hidden_layers": 1}).to_dict()
    part = CheckpointComponent(
        "safety_checker", "stable_diffusion", "StableDiffusionSafetyChecker", {"config.json": config}
    )
    assert type(build_skeleton(part, "float32").module).__name__ == "StableDiffusionSafetyChecker"


def test_what_cannot_be_built_is_counted_by_headers_and_says_so(tiny_wan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wan"
    shutil.copytree(tiny_wan, folder)
    config = folder / "transformer" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_attention_heads": "three"}))
    inventory = inventory_as_loaded(read_checkpoint(folder), "bfloat16")
    assert [part.name for part in inventory.components if part.uncertain] == ["transformer"]
    reason = of(inventory)["transformer"].uncertain
    assert reason.startswith("WanTransformer3DModel cannot be built from its config (")
    assert of(inventory)["transformer"].total_bytes > 0
