"""A Wan of real size as its headers say it: 64 GiB of weights in sparse files that take no disk."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

Shapes = dict[str, tuple[int, ...]]
WIDTH, INNER = 5120, 13824


def _denoiser() -> Shapes:
    shapes: Shapes = {"patch_embedding.weight": (WIDTH, 16, 1, 2, 2), "condition.weight": (WIDTH * 6, WIDTH)}
    for layer in range(40):
        for attention in ("attn1", "attn2"):
            shapes |= {f"blocks.{layer}.{attention}.to_{part}.weight": (WIDTH, WIDTH) for part in "qkvo"}
        shapes |= {f"blocks.{layer}.ffn.up": (INNER, WIDTH), f"blocks.{layer}.ffn.down": (WIDTH, INNER)}
    return shapes


def _encoder() -> Shapes:
    shapes: Shapes = {"shared.weight": (256384, 4096)}
    for layer in range(24):
        shapes |= {f"encoder.block.{layer}.attention.{part}.weight": (4096, 4096) for part in "qkvo"}
        shapes |= {f"encoder.block.{layer}.wi_{part}.weight": (10240, 4096) for part in "01"}
        shapes |= {f"encoder.block.{layer}.wo.weight": (4096, 10240)}
    return shapes


VAE: Shapes = {
    "encoder.conv_in.weight": (96, 3, 3, 3, 3),
    "decoder.conv_in.weight": (384, 16, 3, 3, 3),
    "decoder.up_blocks.0.resnets.0.conv1.weight": (384, 384, 3, 3, 3),
    "decoder.up_blocks.2.resnets.0.conv1.weight": (192, 192, 3, 3, 3),
    "decoder.up_blocks.3.resnets.0.conv1.weight": (96, 96, 3, 3, 3),
    "decoder.up_blocks.3.resnets.1.conv1.weight": (96, 96, 3, 3, 3),
}
VOCABULARY = {"vocab_size": 256384}
LATENTS = {"patch_size": [1, 2, 2], "in_channels": 16}
SCALES = {"z_dim": 16, "scale_factor_spatial": 8, "scale_factor_temporal": 4}


def write_sparse(path: Path, shapes: Shapes) -> None:
    """A valid safetensors file of bf16 zeros, of which only the header is written."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + prod(shape) * 2
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


@pytest.fixture(scope="session")
def wan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole checkpoint: encoder, two experts, VAE, tokenizer, scheduler."""
    root = tmp_path_factory.mktemp("checkpoints") / "wan-of-real-size"
    root.mkdir()
    parts: dict[str, tuple[str, str, str, Shapes, dict[str, Any]]] = {
        "text_encoder": ("transformers", "UMT5EncoderModel", "model", _encoder(), VOCABULARY),
        "transformer": ("diffusers", "WanTransformer3DModel", "diffusion_pytorch_model", _denoiser(), LATENTS),
        "transformer_2": ("diffusers", "WanTransformer3DModel", "diffusion_pytorch_model", _denoiser(), LATENTS),
        "vae": ("diffusers", "AutoencoderKLWan", "diffusion_pytorch_model", VAE, SCALES),
    }
    index: dict[str, Any] = {"_class_name": "WanPipeline", "boundary_ratio": 0.875}
    for name, (library, class_name, stem, shapes, config) in parts.items():
        index[name] = [library, class_name]
        (root / name).mkdir()
        write_sparse(root / name / f"{stem}.safetensors", shapes)
        (root / name / "config.json").write_text(json.dumps(config))
    for name, library, class_name, file, config in (
        ("tokenizer", "transformers", "T5TokenizerFast", "tokenizer_config.json", {}),
        ("scheduler", "diffusers", "UniPCMultistepScheduler", "scheduler_config.json", {"flow_shift": 3.0}),
    ):
        index[name] = [library, class_name]
        (root / name).mkdir()
        (root / name / file).write_text(json.dumps(config))
    (root / "tokenizer" / "tokenizer.json").write_text("{}")
    (root / "model_index.json").write_text(json.dumps(index))
    return root


@pytest.fixture(autouse=True)
def bare_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """These headers stand for a checkpoint, of which no class could be built: everything is counted by them."""

    def missing(*_: Any) -> None:
        raise ModuleNotFoundError("torch")

    monkeypatch.setattr("stowplan_agent.inventory.counting.inventory_as_loaded", missing)
