"""Write small diffusers checkpoints that run anywhere: real layouts, real tokenizers, random weights.

A placement can only be tried on something that has all the parts of a real pipeline: encoders with tokenizer files, a
denoiser of repeated blocks, a VAE, a scheduler, sharded and single safetensors files. These checkpoints have them, in
less than 64 MiB, so that a laptop or a CI machine can plan, apply and serve them on an emulated card of tens of MiB.
The weights are random: the pictures are noise, and are meant to be.

    python examples/tiny_models.py tiny-wan OUTDIR

Promises: the same name gives the same bytes with the same library versions (each component has its own fixed seed);
OUTDIR appears complete or not at all; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

MAX_SHARD_SIZE = "8MB"  # smaller than a denoiser or a T5 encoder, so that both are sharded and have an index file
WORDS = "the of in on and with cat dog fox sea red blue green small big old runs sleeps over under light night"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'-()"
VOCABULARY = 1024  # rows of the T5 embedding; the tokenizer uses the first few hundred


def t5_tokenizer() -> Any:
    """A Unigram tokenizer of words, letters and sentinels, in the class that T5 and UMT5 checkpoints name."""
    from transformers import T5TokenizerFast

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(f"▁{word}", -4.0) for word in WORDS.split()]
    pieces += [("▁", -6.0)] + [(letter, -8.0) for letter in LETTERS]
    pieces += [(f"<extra_id_{number}>", 0.0) for number in reversed(range(100))]
    return T5TokenizerFast(vocab=pieces, model_max_length=512)


def clip_tokenizer() -> Any:
    """A byte-level BPE tokenizer in CLIP's own layout: bytes, bytes that end a word, a few merges, two specials."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer

    alphabet = sorted(ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e</w>"), ("i", "n</w>"), ("c", "a"), ("ca", "t</w>"), ("a", "n"), ("an", "d</w>")]
    tokens = alphabet + [f"{letter}</w>" for letter in alphabet] + ["".join(pair) for pair in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


def seeded(seed: int, build: Callable[[], Any]) -> Any:
    """Build a module under its own seed, so that adding one component does not change the bytes of another."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().eval()


def _umt5() -> Any:
    from transformers import UMT5Config, UMT5EncoderModel

    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=VOCABULARY, d_model=256, d_kv=64, d_ff=512, num_heads=4, num_layers=4,
            dropout_rate=0.0, is_gated_act=True, feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def _t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(
        T5Config(
            vocab_size=VOCABULARY, d_model=256, d_kv=64, d_ff=512, num_heads=4, num_layers=4,
            dropout_rate=0.0, feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def _clip(tokenizer: Any) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, projection_dim=128,
            num_hidden_layers=4, num_attention_heads=2, max_position_embeddings=77,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip


def _wan_transformer() -> Any:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=3, attention_head_dim=64, in_channels=16, out_channels=16,
        text_dim=256, freq_dim=64, ffn_dim=640, num_layers=8, rope_max_seq_len=256,
    )  # fmt: skip


def _flux_transformer() -> Any:
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel(
        patch_size=1, in_channels=64, num_layers=4, num_single_layers=8, attention_head_dim=64, num_attention_heads=2,
        joint_attention_dim=256, pooled_projection_dim=128, guidance_embeds=True, axes_dims_rope=(16, 24, 24),
    )  # fmt: skip


def _wan_vae() -> Any:
    from diffusers import AutoencoderKLWan

    return AutoencoderKLWan(base_dim=8, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=1)


def _flux_vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(16, 32, 48, 48), layers_per_block=1, latent_channels=16, norm_num_groups=8,
        sample_size=128, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False,
    )  # fmt: skip


def tiny_wan(*, experts: int = 1) -> DiffusionPipeline:
    """A WanPipeline: UMT5, one or two Wan transformers of 8 equal blocks, AutoencoderKLWan, UniPC."""
    from diffusers import UniPCMultistepScheduler, WanPipeline

    return WanPipeline(
        tokenizer=t5_tokenizer(),
        text_encoder=seeded(11, _umt5),
        vae=seeded(12, _wan_vae),
        scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        transformer=seeded(13, _wan_transformer),
        transformer_2=seeded(14, _wan_transformer) if experts == 2 else None,
        boundary_ratio=0.875 if experts == 2 else None,
    )


def tiny_flux() -> DiffusionPipeline:
    """A FluxPipeline: CLIP and T5, 4 double-stream and 8 single-stream blocks, AutoencoderKL, flow matching."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline

    clip = clip_tokenizer()
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=seeded(21, _flux_vae),
        text_encoder=seeded(22, lambda: _clip(clip)),
        tokenizer=clip,
        text_encoder_2=seeded(23, _t5),
        tokenizer_2=t5_tokenizer(),
        transformer=seeded(24, _flux_transformer),
    )


MODELS: dict[str, Callable[[], DiffusionPipeline]] = {
    "tiny-wan": tiny_wan,
    "tiny-wan-two-experts": lambda: tiny_wan(experts=2),
    "tiny-flux": tiny_flux,
}


def write_model(name: str, target: Path) -> Path:
    """Write the checkpoint ``name`` to the folder ``target``, replacing an older checkpoint there; returns ``target``.

    Raises `ValueError` for an unknown name, and for a target that holds something other than a checkpoint.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    target = target.absolute()
    if target.exists() and not (target / "model_index.json").is_file() and (target.is_file() or any(target.iterdir())):
        raise ValueError(f"{target} exists and is no checkpoint; give an empty or new folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        written = Path(scratch) / "new"
        MODELS[name]().save_pretrained(written, max_shard_size=MAX_SHARD_SIZE)
        for path in (written, *written.rglob("*")):
            # safetensors writes files for their owner only, and a pod reads them as somebody else.
            path.chmod(0o755 if path.is_dir() else 0o644)
        if target.exists():
            target.rename(Path(scratch) / "old")
        written.rename(target)
    return target


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Write a tiny diffusers checkpoint with random weights.")
    parser.add_argument("name", choices=list(MODELS))
    parser.add_argument("outdir", type=Path, help="the folder of the checkpoint; an older checkpoint there is replaced")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        target = write_model(chosen.name, chosen.outdir)
    except (ValueError, OSError) as error:
        print(f"tiny_models: {error}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {chosen.name}, {size / 2**20:.1f} MiB, random weights")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
