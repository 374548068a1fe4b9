"""Which widths, heights and numbers of frames a model accepts, from its configs.

A pipeline rounds a shape it does not like, or fails deep inside a convolution. Either way the measured shape would not
be the declared one, so a declared shape is checked against the model's own contract before anything is loaded. The
numbers are what the pipelines themselves compute: side = VAE scale x patch of the denoiser, frames = scale x k + 1 for
causal video VAEs. They are read off the structure of the configs, never off a list of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt, lcm
from typing import Any, Final, TypeGuard

from stowplan_agent.inventory.checkpoint import Checkpoint
from stowplan_agent.inventory.errors import InventoryError

LARGEST_SIDE: Final = 16_384
"""Pixels; the bound of the resource's schema."""
MOST_FRAMES: Final = 10_000
"""The bound of the resource's schema."""


@dataclass(frozen=True, slots=True)
class FrameContract:
    """Width and height are multiples of ``side`` pixels; frames are ``temporal`` x k + 1, or 1 for an image model."""

    side: int
    temporal: int | None

    def side_at_most(self, pixels: int) -> int:
        """The largest valid width or height up to ``pixels``, and at least the smallest valid one."""
        return max(pixels // self.side, 1) * self.side

    def frames_at_most(self, frames: int) -> int:
        """The largest valid number of frames up to ``frames``, and at least 1."""
        return 1 if self.temporal is None else max(frames - 1, 0) // self.temporal * self.temporal + 1


def check_shape(checkpoint: Checkpoint, width: int, height: int, frames: int) -> None:
    """Check a request shape (pixels, pixels, frames). Raises `InventoryError` naming the nearest valid values."""
    contract = frame_contract(checkpoint)
    for thing, value, largest in (
        ("width", width, LARGEST_SIDE), ("height", height, LARGEST_SIDE), ("frames", frames, MOST_FRAMES)
    ):  # fmt: skip
        if not 1 <= value <= largest:
            raise InventoryError(f"{thing} {value} is outside 1 to {largest}; declare a {thing} in that range")
    for thing, pixels in (("width", width), ("height", height)):
        if pixels % contract.side:
            near = _near(contract.side_at_most(pixels), contract.side, pixels, LARGEST_SIDE)
            raise InventoryError(
                f"{thing} {pixels} does not suit {checkpoint.pipeline}, which takes multiples of {contract.side} "
                f"pixels; use {near}"
            )
    if contract.temporal is None and frames != 1:
        raise InventoryError(f"frames {frames} does not suit {checkpoint.pipeline}, which makes images; use 1")
    if contract.temporal is not None and frames != contract.frames_at_most(frames):
        near = _near(contract.frames_at_most(frames), contract.temporal, frames, MOST_FRAMES)
        raise InventoryError(
            f"frames {frames} does not suit {checkpoint.pipeline}, which takes {contract.temporal} x k + 1 frames; "
            f"use {near}"
        )


def frame_contract(checkpoint: Checkpoint) -> FrameContract:
    """The contract of a checkpoint. Sides are multiples of 8 where the structure of the VAE is unknown."""
    vaes = [part.config for part in checkpoint.weighted if _is_vae(part.class_name)]
    others = [part.config for part in checkpoint.weighted if not _is_vae(part.class_name)]
    spatial = lcm(*(_spatial_scale(vae) for vae in vaes)) if vaes else 8
    latents = next((size for vae in vaes for key in ("z_dim", "latent_channels") if _whole(size := vae.get(key))), 0)
    patch = lcm(*(_patch(config, latents) for config in others)) if others else 1
    scales = [scale for vae in vaes if (scale := _temporal_scale(vae)) is not None]
    makes_video = bool(scales) and not _makes_images(checkpoint.pipeline)
    return FrameContract(side=spatial * patch, temporal=max(scales) if makes_video else None)


def _is_vae(class_name: str) -> bool:
    return class_name.startswith(("Autoencoder", "AsymmetricAutoencoder", "VQModel"))


def _makes_images(pipeline: str) -> bool:
    """Image models borrow video VAEs (Qwen-Image has Wan's); their pipelines say Image, and those of videos Video."""
    return "Image" in pipeline and "Video" not in pipeline


def _spatial_scale(vae: Mapping[str, Any]) -> int:
    for key in ("scale_factor_spatial", "spatial_compression_ratio"):
        if _whole(vae.get(key)):
            return int(vae[key])
    scaling = vae.get("spatio_temporal_scaling")  # LTX: sampling in blocks, after patches
    if isinstance(scaling, list):
        return _or_one(vae.get("patch_size")) << sum(map(bool, scaling))
    sampling = vae.get("temperal_downsample")  # the spelling of the configs
    if isinstance(sampling, list):
        return _or_one(vae.get("patch_size")) << len(sampling)
    channels = vae.get("block_out_channels") or vae.get("encoder_block_out_channels")
    return 1 << (len(channels) - 1) if isinstance(channels, list) and channels else 8


def _temporal_scale(vae: Mapping[str, Any]) -> int | None:
    for key in ("scale_factor_temporal", "temporal_compression_ratio"):
        if _whole(vae.get(key)):
            return int(vae[key])
    for key in ("spatio_temporal_scaling", "temperal_downsample"):
        if isinstance(vae.get(key), list):
            return _or_one(vae.get("patch_size_t")) << sum(map(bool, vae[key]))
    return None


def _patch(config: Mapping[str, Any], latents: int) -> int:
    """Latents along one side that a denoiser takes as one token; 1 for anything else."""
    patch = config.get("patch_size")
    if "in_channels" not in config:
        return 1
    if isinstance(patch, list) and patch and all(map(_whole, patch)):
        return lcm(*patch[-2:])
    if _whole(patch) and patch != 1:
        return patch
    # Flux declares patch 1 and lets its pipeline fold squares of latents into channels
    channels = config["in_channels"]
    if patch == 1 and latents and _whole(channels) and channels % latents == 0:
        folded = isqrt(channels // latents)
        return folded if folded**2 == channels // latents else 1
    return 1


def _near(below: int, step: int, asked: int, largest: int) -> str:
    """The valid values on both sides of what was asked, within bounds."""
    above = below + step
    return f"{below} or {above}" if below < asked and above <= largest else str(below)


def _whole(value: Any) -> TypeGuard[int]:
    return type(value) is int and value > 0


def _or_one(value: Any) -> int:
    return value if _whole(value) else 1
