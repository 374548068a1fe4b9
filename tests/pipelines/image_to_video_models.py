"""One more tiny checkpoint for the matrix: image to video, as Wan 2.1 does it.

A request encodes the first frame twice before it denoises: a vision model sees it, and the VAE encodes it, padded to
the length of the video. So a VAE has two intervals with the denoiser between them, and the largest peak may lie in the
first. Written as ``examples/tiny_models.py`` writes the others.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

SEEN = 64
"""Width of the vision model, and what the denoiser takes from it."""


def _vision() -> Any:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    return CLIPVisionModel(
        CLIPVisionConfig(
            hidden_size=SEEN, intermediate_size=128, num_hidden_layers=5, num_attention_heads=2, image_size=32,
            patch_size=8, projection_dim=SEEN,
        )
    )  # fmt: skip


def _transformer() -> Any:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=3, attention_head_dim=64, in_channels=36, out_channels=16,
        text_dim=256, freq_dim=64, ffn_dim=640, num_layers=8, rope_max_seq_len=256, image_dim=SEEN,
        added_kv_proj_dim=192,
    )  # fmt: skip


def tiny_image_to_video(tools: ModuleType) -> Any:
    """A WanImageToVideoPipeline: UMT5, CLIP's vision model, eight blocks, AutoencoderKLWan, UniPC."""
    from diffusers import UniPCMultistepScheduler, WanImageToVideoPipeline
    from transformers import CLIPImageProcessor

    side = {"height": 32, "width": 32}
    return WanImageToVideoPipeline(
        tokenizer=tools.t5_tokenizer(),
        text_encoder=tools.seeded(61, tools._umt5),
        vae=tools.seeded(62, tools._wan_vae),
        scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        image_processor=CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=side),
        image_encoder=tools.seeded(63, _vision),
        transformer=tools.seeded(64, _transformer),
    )


def models(tools: ModuleType) -> dict[str, Callable[[], Any]]:
    """By name; ``tools`` is the module ``examples/tiny_models.py``."""
    return {"tiny-image-to-video": lambda: tiny_image_to_video(tools)}
