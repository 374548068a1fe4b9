"""What headers alone tell of the tiny checkpoints: layers by the files' names, classes, and which shapes they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import DiffusionPipeline

from stowplan_agent.inventory import read_checkpoint, take_inventory
from stowplan_agent.inventory.checkpoint import check_classes, diffusers_classes
from stowplan_agent.inventory.frames import FrameContract, frame_contract

NAMES = ["tiny-wan", "tiny-wan-two-experts", "tiny-flux", "tiny-ltx", "tiny-image-to-video"]


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
    elif name == "tiny-ltx":
        sides = (pipe.vae_spatial_compression_ratio, pipe.vae_temporal_compression_ratio)
        assert frame_contract(checkpoint) == FrameContract(*sides)
    else:
        side = pipe.vae_scale_factor_spatial * pipe.transformer.config.patch_size[1]
        assert frame_contract(checkpoint) == FrameContract(side, pipe.vae_scale_factor_temporal)
