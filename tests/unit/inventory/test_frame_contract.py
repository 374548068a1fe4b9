"""The shapes that a model takes are read off its configs, as its pipeline would compute them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.inventory.checkpoint import Checkpoint, CheckpointComponent
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.frames import FrameContract, check_shape, frame_contract
from stowplan_agent.inventory.headers import Header

FILES = (Header(Path("w.safetensors"), 0, {}, {}),)


def checkpoint(pipeline: str, denoiser: dict[str, Any], vae_class: str, vae: dict[str, Any]) -> Checkpoint:
    parts = (
        CheckpointComponent("text_encoder", "transformers", "CLIPModel", {"config.json": {"patch_size": 14}}, FILES),
        CheckpointComponent("transformer", "diffusers", "Denoiser", {"config.json": denoiser}, FILES),
        CheckpointComponent("vae", "diffusers", vae_class, {"config.json": vae}, FILES),
    )
    return Checkpoint(Path("model"), pipeline, {}, parts)


WAN = checkpoint(
    "WanPipeline",
    {"patch_size": [1, 2, 2], "in_channels": 16},
    "AutoencoderKLWan",
    {"z_dim": 16, "scale_factor_spatial": 8, "scale_factor_temporal": 4},
)
FLUX_VAE = {"latent_channels": 16, "block_out_channels": [128, 256, 512, 512]}
FLUX = checkpoint("FluxPipeline", {"patch_size": 1, "in_channels": 64}, "AutoencoderKL", FLUX_VAE)
OLD_WAN_VAE = {"z_dim": 16, "temperal_downsample": [False, True, True]}
LTX_VAE = {
    "latent_channels": 128,
    "patch_size": 4,
    "patch_size_t": 1,
    "spatio_temporal_scaling": [True, True, True, False],
}
MODELS = {
    "Wan": (WAN, 16, 4),
    "Wan, older config": (
        checkpoint(
            "WanImageToVideoPipeline", {"patch_size": [1, 2, 2], "in_channels": 36}, "AutoencoderKLWan", OLD_WAN_VAE
        ),
        16,
        4,
    ),
    "Wan 5B": (
        checkpoint(
            "WanPipeline",
            {"patch_size": [1, 2, 2], "in_channels": 48},
            "AutoencoderKLWan",
            {"z_dim": 48, "patch_size": 2, "scale_factor_spatial": 16, "scale_factor_temporal": 4},
        ),
        32,
        4,
    ),
    "Flux": (FLUX, 16, None),
    "Flux Fill": (
        checkpoint("FluxFillPipeline", {"patch_size": 1, "in_channels": 384}, "AutoencoderKL", FLUX_VAE),
        8,
        None,
    ),
    "Qwen-Image": (
        checkpoint("QwenImagePipeline", {"patch_size": 2, "in_channels": 64}, "AutoencoderKLQwenImage", OLD_WAN_VAE),
        16,
        None,
    ),
    "SDXL": (
        checkpoint(
            "StableDiffusionXLPipeline",
            {"in_channels": 4},
            "AutoencoderKL",
            {"latent_channels": 4, "block_out_channels": [128, 256, 512, 512]},
        ),
        8,
        None,
    ),
    "SD3": (
        checkpoint("StableDiffusion3Pipeline", {"patch_size": 2, "in_channels": 16}, "AutoencoderKL", FLUX_VAE),
        16,
        None,
    ),
    "LTX": (
        checkpoint(
            "LTXPipeline", {"patch_size": 1, "patch_size_t": 1, "in_channels": 128}, "AutoencoderKLLTXVideo", LTX_VAE
        ),
        32,
        8,
    ),
    "HunyuanVideo": (
        checkpoint(
            "HunyuanVideoPipeline",
            {"patch_size": 2, "patch_size_t": 1, "in_channels": 16},
            "AutoencoderKLHunyuanVideo",
            {"latent_channels": 16, "spatial_compression_ratio": 8, "temporal_compression_ratio": 4},
        ),
        16,
        4,
    ),
}


@pytest.mark.parametrize(("model", "side", "temporal"), MODELS.values(), ids=MODELS.keys())
def test_contract(model: Checkpoint, side: int, temporal: int | None) -> None:
    assert frame_contract(model) == FrameContract(side, temporal)


@pytest.mark.parametrize(
    ("model", "shape"), [(WAN, (832, 480, 81)), (WAN, (64, 64, 5)), (WAN, (64, 64, 1)), (FLUX, (1024, 768, 1))]
)
def test_valid_shapes_pass(model: Checkpoint, shape: tuple[int, int, int]) -> None:
    check_shape(model, *shape)


@pytest.mark.parametrize(
    ("model", "shape", "says"),
    [
        (
            WAN,
            (830, 480, 81),
            "width 830 does not suit WanPipeline, which takes multiples of 16 pixels; use 816 or 832",
        ),
        (WAN, (832, 479, 81), "use 464 or 480"),
        (WAN, (832, 8, 81), "height 8 does not suit WanPipeline, which takes multiples of 16 pixels; use 16"),
        (WAN, (16383, 480, 81), "use 16368 or 16384"),
        (WAN, (832, 480, 80), "frames 80 does not suit WanPipeline, which takes 4 x k + 1 frames; use 77 or 81"),
        (WAN, (832, 480, 10_000), "use 9997"),
        (FLUX, (1024, 1024, 5), "frames 5 does not suit FluxPipeline, which makes images; use 1"),
        (FLUX, (-16, 1024, 1), "width -16 is outside 1 to 16384"),
        (FLUX, (1024, 0, 1), "height 0 is outside"),
        (FLUX, (1024, 1 << 40, 1), "outside 1 to 16384"),
        (WAN, (832, 480, 0), "frames 0 is outside 1 to 10000"),
        (WAN, (832, 480, 10_001), "outside 1 to 10000"),
    ],
)
def test_other_shapes_name_the_nearest_valid_values(model: Checkpoint, shape: tuple[int, int, int], says: str) -> None:
    with pytest.raises(InventoryError) as refusal:
        check_shape(model, *shape)
    assert says in str(refusal.value)


CONTRACTS = st.builds(FrameContract, st.integers(1, 64), st.none() | st.integers(1, 16))


@given(CONTRACTS, st.integers(1, 16384), st.integers(1, 10_000))
def test_the_largest_valid_value_is_valid_close_and_stays(contract: FrameContract, pixels: int, frames: int) -> None:
    side, valid = contract.side_at_most(pixels), contract.frames_at_most(frames)
    assert side % contract.side == 0 and side > 0
    assert side <= pixels < side + contract.side or side == contract.side
    assert contract.side_at_most(side) == side
    assert contract.frames_at_most(valid) == valid <= frames
    assert valid == 1 if contract.temporal is None else frames - valid < contract.temporal
