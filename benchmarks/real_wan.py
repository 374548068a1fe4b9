"""Wan 2.2 A14B, one expert, at its real size with random weights: a pipeline that is there at once.

Filling 38 GiB of host memory with random numbers, for the weights engine to copy them into memory of its own, takes
longer than most of what is measured. So each weight is a stretch of one small file of random numbers, mapped: to the
engine it is a checkpoint that was loaded lazily, which is read in parallel to where it belongs. Values do not matter to
time, except that they must be no zeros (those are multiplied with less power, at higher clocks) and must stay finite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

import tiny_models

BLOCK = 1 << 26
"""Random numbers that are made; the file repeats them."""
STD = 0.014
"""Of all weights: 1 / sqrt(5120), so that a linear layer of the denoiser keeps the size of what goes through it."""
FILE_BYTES = 9 << 28
"""2.25 GiB: the largest weight is the encoder's embedding of 2.0 GiB."""
PAGE = 4096


def denoiser() -> WanTransformer3DModel:
    """Wan 2.2 A14B's, 26.6 GiB in bfloat16."""
    return WanTransformer3DModel(
        num_layers=40, num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, in_channels=16,
        out_channels=16, text_dim=4096, freq_dim=256, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    )  # fmt: skip


def encoder() -> UMT5EncoderModel:
    """UMT5-XXL's, 10.6 GiB in bfloat16."""
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=256384, d_model=4096, d_kv=64, d_ff=10240, num_heads=64, num_layers=24, dropout_rate=0.0,
            is_gated_act=True, feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def pipeline(folder: Path) -> WanPipeline:
    """The whole pipeline in bfloat16, the VAE in float32 as Wan asks for; the random file is written to ``folder``."""
    noise = random_file(folder / "random-weights", FILE_BYTES)
    with torch.device("meta"):
        transformer, text = denoiser().to(torch.bfloat16), encoder().to(torch.bfloat16)
    rope = type(transformer.rope)(128, (1, 2, 2), 1024)  # its tables are computed, not weights
    transformer.rope = torch.nn.Identity()
    map_weights(transformer, noise)
    transformer.rope = rope
    map_weights(text, noise)
    return WanPipeline(
        tokenizer=tiny_models.t5_tokenizer(),
        text_encoder=text.eval(),
        vae=tiny_models.seeded(3, AutoencoderKLWan),
        scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        transformer=transformer.eval(),
    )


def random_file(path: Path, nbytes: int, block: int = BLOCK) -> torch.UntypedStorage:
    """``nbytes`` of random bfloat16 numbers in a file, mapped."""
    numbers = random_numbers(block).view(torch.uint8).numpy().data
    with path.open("wb") as file:
        for start in range(0, nbytes, len(numbers)):
            file.write(numbers[: nbytes - start])
    return torch.UntypedStorage.from_file(str(path), False, nbytes)


def random_numbers(count: int) -> torch.Tensor:
    """As many bfloat16 numbers of weights' size, the same every time."""
    return torch.randn(count, generator=torch.Generator().manual_seed(0)).mul_(STD).to(torch.bfloat16)


def map_weights(module: torch.nn.Module, noise: torch.UntypedStorage) -> None:
    """Make each matrix of a bfloat16 module without memory a stretch of the file; vectors become ones, biases zeros."""
    known: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
    start = 0
    for owner in module.modules():
        for name, meta in list(owner.named_parameters(recurse=False)):
            if meta not in known:  # or it is tied
                if start + meta.nbytes > noise.nbytes():
                    start = 0
                if meta.dim() < 2:
                    made = torch.full(meta.shape, 0.0 if name == "bias" else 1.0, dtype=meta.dtype)
                else:
                    stretch: Any = noise[start : start + meta.nbytes]
                    made = torch.empty(0, dtype=meta.dtype).set_(stretch, 0, meta.shape)
                    start += -(-meta.nbytes // PAGE) * PAGE
                known[meta] = torch.nn.Parameter(made, requires_grad=False)
            owner.register_parameter(name, known[meta])
