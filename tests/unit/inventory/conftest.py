"""Builders of small files: one safetensors file, one whole checkpoint folder. No torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
WriteFile = Callable[[Path, Tensors], Path]

ENCODER: Tensors = {"shared.weight": ("F32", (64, 8))} | {
    f"encoder.block.{layer}.layer.{part}.weight": ("F32", (8, 8)) for layer in range(4) for part in range(2)
}
DENOISER: Tensors = {"patch.weight": ("F32", (16, 8)), "steps": ("I64", (3,))} | {
    f"blocks.{layer}.{part}": ("F32", (16, 16)) for layer in range(6) for part in ("attn.q", "norm1.weight")
}
VAE: Tensors = {"decoder.conv.weight": ("F32", (4, 4, 3, 3, 3))}


@pytest.fixture(scope="session")
def write_safetensors() -> WriteFile:
    """Write a valid file of zeros, by the format's description and not by our own code."""

    def write(path: Path, tensors: Tensors) -> Path:
        header: dict[str, Any] = {}
        position = 0
        for name, (dtype, shape) in tensors.items():
            end = position + prod(shape) * WIDTHS[dtype]
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
            position = end
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(position))
        return path

    return write


@pytest.fixture
def checkpoint_folder(tmp_path: Path, write_safetensors: WriteFile) -> Path:
    """A small WanPipeline folder: encoder in one file, denoiser in two shards, VAE, tokenizer, scheduler."""
    root = tmp_path / "wan"
    index = {
        "_class_name": "WanPipeline",
        "_diffusers_version": "0.40.0",
        "boundary_ratio": None,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    configs: dict[str, dict[str, Any]] = {
        "scheduler/scheduler_config.json": {"flow_shift": 3.0},
        "text_encoder/config.json": {"vocab_size": 64, "transformers_version": "5.0.0"},
        "tokenizer/tokenizer_config.json": {"model_max_length": 512},
        "transformer/config.json": {"patch_size": [1, 2, 2], "in_channels": 16, "num_layers": 6},
        "vae/config.json": {"z_dim": 16, "scale_factor_spatial": 8, "scale_factor_temporal": 4},
    }
    root.mkdir()
    (root / "model_index.json").write_text(json.dumps(index))
    for name, config in configs.items():
        (root / name).parent.mkdir()
        (root / name).write_text(json.dumps(config))
    (root / "tokenizer" / "tokenizer.json").write_text("{}")
    write_safetensors(root / "text_encoder" / "model.safetensors", ENCODER)
    write_safetensors(root / "vae" / "diffusion_pytorch_model.safetensors", VAE)
    names = list(DENOISER)
    weight_map = {}
    for number, part in enumerate((names[:6], names[6:]), start=1):
        file = f"diffusion_pytorch_model-0000{number}-of-00002.safetensors"
        write_safetensors(root / "transformer" / file, {name: DENOISER[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    index_file = root / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
    index_file.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return root
