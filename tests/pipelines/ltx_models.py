"""One more tiny checkpoint for the matrix: an LTX-like video pipeline.

Its transformer rotates queries by positions that it computes from frames and seconds, and its VAE compresses 32 times
in space and 8 in time, so that one pass works on few tokens and the decoder on many: the opposite of tiny Wan. T5 keeps
a part of each layer in float32 where float16 is asked for. Written as ``examples/tiny_models.py`` writes the others.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def _transformer() -> Any:
    from diffusers import LTXVideoTransformer3DModel

    return LTXVideoTransformer3DModel(
        in_channels=16, out_channels=16, num_attention_heads=4, attention_head_dim=32, cross_attention_dim=128,
        num_layers=6, caption_channels=256,
    )  # fmt: skip


def _vae() -> Any:
    from diffusers import AutoencoderKLLTXVideo

    return AutoencoderKLLTXVideo(
        latent_channels=16, block_out_channels=(8, 16, 16, 16), decoder_block_out_channels=(8, 16, 16, 16),
        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1),
    )  # fmt: skip


def tiny_ltx(tools: ModuleType) -> Any:
    """An LTXPipeline: T5, six transformer blocks, a causal VAE of 32x32x8, flow matching."""
    from diffusers import FlowMatchEulerDiscreteScheduler, LTXPipeline

    return LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=True),
        vae=tools.seeded(51, _vae),
        text_encoder=tools.seeded(52, tools._t5),
        tokenizer=tools.t5_tokenizer(),
        transformer=tools.seeded(53, _transformer),
    )


def models(tools: ModuleType) -> dict[str, Callable[[], Any]]:
    """By name; ``tools`` is the module ``examples/tiny_models.py``."""
    return {"tiny-ltx": lambda: tiny_ltx(tools)}
