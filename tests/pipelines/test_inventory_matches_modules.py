"""What the files promise is what loading gives: bytes, precisions and layers, component by component."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline

from stowplan_agent.inventory.checkpoint import check_classes, diffusers_classes, read_checkpoint
from stowplan_agent.inventory.components import take_inventory
from stowplan_agent.inventory.frames import FrameContract, frame_contract
from stowplan_agent.inventory.layers import find_groups
from stowplan_agent.inventory.tensors import TensorInfo

NAMES = ["tiny-wan", "tiny-wan-two-experts", "tiny-flux"]


def of_module(module: torch.nn.Module) -> dict[str, TensorInfo]:
    """Each parameter once, as the engine sees a module."""
    return {
        name: TensorInfo(tuple(value.shape), str(value.dtype), value.nbytes)
        for name, value in module.named_parameters()
    }


def kept_in_float32(pipe: Any, dtype: torch.dtype) -> dict[str, tuple[str, ...]]:
    """What the classes declare; transformers' plain list counts for float16 only (modeling_utils, dtype plan)."""
    kept = {}
    for name, module in pipe.components.items():
        if isinstance(module, torch.nn.Module) and dtype is not torch.float32:
            of_diffusers = type(module).__module__.startswith("diffusers")
            plain = (
                getattr(type(module), "_keep_in_fp32_modules", None) if of_diffusers or dtype is torch.float16 else None
            )
            kept[name] = tuple(plain or ()) + tuple(getattr(module, "_keep_in_fp32_modules_strict", None) or ())
    return kept


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", [*NAMES, "tiny-sdxl"])
def test_inventory_equals_loaded_modules(name: str, dtype: str, write_tiny: Callable[[str], Path]) -> None:
    checkpoint = read_checkpoint(write_tiny(name))
    pipe = DiffusionPipeline.from_pretrained(checkpoint.path, dtype=getattr(torch, dtype), local_files_only=True)
    inventory = take_inventory(checkpoint, dtype, kept=kept_in_float32(pipe, getattr(torch, dtype)))
    modules = {part: module for part, module in pipe.components.items() if isinstance(module, torch.nn.Module)}
    assert {component.name for component in inventory.components} == set(modules)
    for component in inventory.components:
        tensors = of_module(modules[component.name])
        groups = find_groups(tensors)
        assert component.class_name == type(modules[component.name]).__name__
        assert component.tensor_bytes == sum(info.nbytes for info in tensors.values())
        assert {group.name: group.layer_bytes for group in component.groups} == {
            group.name: group.layer_bytes(tensors) for group in groups
        }


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("tiny-wan", {"text_encoder": {"encoder.block": 4}, "transformer": {"blocks": 8}, "vae": {}}),
        (
            "tiny-flux",
            {
                "text_encoder": {"encoder.layers": 4},
                "text_encoder_2": {"encoder.block": 4},
                "transformer": {"transformer_blocks": 4, "single_transformer_blocks": 8},
                "vae": {},
            },
        ),
        (
            "tiny-sdxl",
            {
                "text_encoder": {"encoder.layers": 4},
                "text_encoder_2": {"text_model.encoder.layers": 4},
                "unet": {
                    "down_blocks.1.attentions.0.transformer_blocks": 4,
                    "mid_block.attentions.0.transformer_blocks": 4,
                    "up_blocks.0.attentions.0.transformer_blocks": 4,
                    "up_blocks.0.attentions.1.transformer_blocks": 4,
                },
                "vae": {},
            },
        ),
        (
            "tiny-qwen",
            {
                "text_encoder": {"model.layers": 4, "visual.blocks": 4},
                "transformer": {"transformer_blocks": 6},
                "vae": {},
            },
        ),
    ],
)
def test_groups_of_the_tiny_models(name: str, groups: dict[str, Any], write_tiny: Callable[[str], Path]) -> None:
    inventory = take_inventory(read_checkpoint(write_tiny(name)), "float32")
    assert {
        component.name: {group.name: len(group.layer_bytes) for group in component.groups}
        for component in inventory.components
    } == groups


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_known_and_the_frame_contract_is_the_pipelines_own(
    name: str, write_tiny: Callable[[str], Path]
) -> None:
    checkpoint = read_checkpoint(write_tiny(name))
    known = diffusers_classes()
    assert known is not None
    check_classes(checkpoint, known)
    pipe: Any = DiffusionPipeline.from_pretrained(checkpoint.path, local_files_only=True)
    if name == "tiny-flux":
        assert frame_contract(checkpoint) == FrameContract(pipe.vae_scale_factor * 2, None)
    else:
        side = pipe.vae_scale_factor_spatial * pipe.transformer.config.patch_size[1]
        assert frame_contract(checkpoint) == FrameContract(side, pipe.vae_scale_factor_temporal)
