"""Two more tiny checkpoints for the matrix: a UNet pipeline, and one whose text encoder is a causal language model.

Their weights lie in ways that tiny Wan and tiny Flux do not have: stacks of layers that a pass runs in another order
than the module lists them (a UNet's middle block is assigned last), convolutions outside every stack, vocabulary tables
that are tied, an encoder with a vision tower that no request ever calls. Written as ``examples/tiny_models.py`` writes
the others: real layouts, real tokenizers, random weights, nothing downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

ROWS = 512
"""Of the causal model's vocabulary table; its tokenizer uses the first few hundred."""


def bpe_tokenizer() -> Any:
    """A byte-level BPE tokenizer in Qwen2's own layout, with the marks of its chat template."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("r", "e"), ("re", "d"), ("o", "x"), ("f", "ox"), ("a", "n")]
    tokens = [*sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    special = ["<|im_start|>", "<|im_end|>"]
    return Qwen2Tokenizer(vocab=vocabulary, merges=merges, model_max_length=2048, additional_special_tokens=special)


def _unet() -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 4), attention_head_dim=(2, 4), use_linear_projection=True,
        cross_attention_dim=256, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=128 + 6 * 8, norm_num_groups=8,
    )  # fmt: skip


def _clip(tokenizer: Any, *, projected: bool) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(
        CLIPTextConfig(
            vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, projection_dim=128,
            num_hidden_layers=4, num_attention_heads=2, max_position_embeddings=77,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip


def _kl_vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 32), layers_per_block=1, latent_channels=4, norm_num_groups=8, sample_size=64,
    )  # fmt: skip


def _causal_model(tokenizer: Any) -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    text = {
        "vocab_size": ROWS, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
        "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
    }  # fmt: skip
    vision = {
        "depth": 4, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 128,
        "fullatt_block_indexes": [3],
    }  # fmt: skip
    marks = {"image_token_id": 500, "video_token_id": 501, "vision_start_token_id": 502, "vision_end_token_id": 503}
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **marks)
    )


def _qwen_transformer() -> Any:
    from diffusers import QwenImageTransformer2DModel

    return QwenImageTransformer2DModel(
        patch_size=2, in_channels=64, out_channels=16, num_layers=6, attention_head_dim=32, num_attention_heads=3,
        joint_attention_dim=128, axes_dims_rope=(8, 12, 12),
    )  # fmt: skip


def _qwen_vae() -> Any:
    from diffusers import AutoencoderKLQwenImage

    return AutoencoderKLQwenImage(base_dim=8, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=1)


def tiny_sdxl(tools: ModuleType) -> Any:
    """A StableDiffusionXLPipeline: two CLIPs, a UNet with four stacks of transformer blocks, AutoencoderKL, Euler."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    tokenizer = tools.clip_tokenizer()
    return StableDiffusionXLPipeline(
        vae=tools.seeded(31, _kl_vae),
        text_encoder=tools.seeded(32, lambda: _clip(tokenizer, projected=False)),
        text_encoder_2=tools.seeded(33, lambda: _clip(tokenizer, projected=True)),
        tokenizer=tokenizer,
        tokenizer_2=tools.clip_tokenizer(),
        unet=tools.seeded(34, _unet),
        scheduler=EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
        add_watermarker=False,
    )


def tiny_qwen(tools: ModuleType) -> Any:
    """A QwenImagePipeline: Qwen2.5-VL as text encoder, 6 double-stream blocks, its causal VAE, flow matching."""
    from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline

    tokenizer = bpe_tokenizer()
    return QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=tools.seeded(41, _qwen_vae),
        text_encoder=tools.seeded(42, lambda: _causal_model(tokenizer)),
        tokenizer=tokenizer,
        transformer=tools.seeded(43, _qwen_transformer),
    )


def models(tools: ModuleType) -> dict[str, Callable[[], Any]]:
    """By name; ``tools`` is the module ``examples/tiny_models.py``."""
    return {"tiny-sdxl": lambda: tiny_sdxl(tools), "tiny-qwen": lambda: tiny_qwen(tools)}
