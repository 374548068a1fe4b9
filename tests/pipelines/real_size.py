"""Wan2.2 14B as a checkpoint of its real size whose weights are holes: 63 GiB of files that take some MiB of a disk.

Headers and configs are those that diffusers and transformers write for these classes and sizes; nobody can load it, so
whoever reads a weight of it is found out.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import torch

UMT5_XXL: Final = {
    "vocab_size": 256384, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_heads": 64, "num_layers": 24,
    "is_gated_act": True, "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new",
}  # fmt: skip
WAN_14B: Final = {
    "patch_size": [1, 2, 2], "num_attention_heads": 40, "attention_head_dim": 128, "in_channels": 16,
    "out_channels": 16, "text_dim": 4096, "freq_dim": 256, "ffn_dim": 13824, "num_layers": 40, "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads", "eps": 1e-06, "rope_max_seq_len": 1024,
}  # fmt: skip


def write_wan_14b(folder: Path, tiny: Path) -> Path:
    """The checkpoint in ``folder``; scheduler, tokenizer and index are those of ``tiny``, a tiny two-expert one."""
    from diffusers import AutoencoderKLWan, WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    folder.mkdir()
    for name in ("scheduler", "tokenizer"):
        shutil.copytree(tiny / name, folder / name)
    shutil.copy(tiny / "model_index.json", folder)
    with torch.device("meta"):
        encoder = UMT5EncoderModel(UMT5Config(**UMT5_XXL))
        experts = [WanTransformer3DModel(**WAN_14B) for _ in range(2)]
    vae = AutoencoderKLWan()
    _write(folder / "text_encoder", "model", encoder, encoder.config.to_dict(), "BF16")
    for name, model in zip(("transformer", "transformer_2"), experts, strict=True):
        _write(folder / name, "diffusion_pytorch_model", model, dict(model.config), "F32")
    _write(folder / "vae", "diffusion_pytorch_model", vae, dict(vae.config), "F32")
    return folder


def _write(folder: Path, stem: str, model: torch.nn.Module, config: dict[str, Any], dtype: str) -> None:
    folder.mkdir()
    saved = {key: value for key, value in config.items() if not key.startswith("_")}
    (folder / "config.json").write_text(json.dumps(saved))
    header, end, tied = {}, 0, set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in tied:
            continue
        tied.add(id(tensor))
        begin, end = end, end + tensor.numel() * (2 if dtype == "BF16" else 4)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / f"{stem}.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
