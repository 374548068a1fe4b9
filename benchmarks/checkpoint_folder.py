"""Writing a pipeline as a complete checkpoint folder, as fast as the disk takes it.

`save_pretrained` writes one file after another on one thread. Here files of the same layout are written at the same
time, each on a thread of its own (the kernel lets one writer into a file), straight from the weights' memory.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from io import RawIOBase
from pathlib import Path
from typing import Any

import torch

DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
SHARD = 2 << 30
PIECE = 32 << 20
Weights = Mapping[str, torch.Tensor]


def write_folder(pipeline: Any, folder: Path, *, shard_bytes: int = SHARD) -> None:
    """A diffusers-layout folder of a pipeline in host memory. ``model_index.json`` comes last: then all is there."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        writing: list[Future[None]] = []
        for name, part in pipeline.components.items():
            if isinstance(part, torch.nn.Module):
                (folder / name).mkdir(parents=True, exist_ok=True)
                files = shards_of(weights_of(part), folder / name, write_config(part, folder / name), shard_bytes)
                writing += [pool.submit(write_file, path, shard) for path, shard in files.items()]
            elif part is not None:
                part.save_pretrained(folder / name)
        for done in writing:
            done.result()
    pipeline.save_config(folder)


def write_config(part: Any, folder: Path) -> str:
    """The config of one network; returns how its files of weights are called."""
    if hasattr(part, "save_config"):  # of diffusers
        part.save_config(folder)
        return "diffusion_pytorch_model"
    part.config.architectures = [type(part).__name__]
    part.config.dtype = str(part.dtype).removeprefix("torch.")
    part.config.save_pretrained(folder)
    return "model"


def weights_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Everything that a checkpoint has of a module, each tensor by its first name."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def shards_of(weights: Weights, folder: Path, stem: str, shard_bytes: int) -> dict[Path, Weights]:
    """Files of at most ``shard_bytes``, or one tensor, each; where there are several, their index is written."""
    shards = list(_shards(weights, shard_bytes))
    if len(shards) == 1:
        return {folder / f"{stem}.safetensors": shards[0]}
    names = [f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in weights.values())},
        "weight_map": {key: name for name, shard in zip(names, shards, strict=True) for key in shard},
    }
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return {folder / name: shard for name, shard in zip(names, shards, strict=True)}


def _shards(weights: Weights, shard_bytes: int) -> Iterator[Weights]:
    shard: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        if shard and sum(one.nbytes for one in shard.values()) + tensor.nbytes > shard_bytes:
            yield shard
            shard = {}
        shard[name] = tensor
    yield shard


def write_file(path: Path, shard: Weights) -> None:
    """One file. Format: https://github.com/huggingface/safetensors#format"""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in shard.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb", buffering=0) as file:
        _put(file, memoryview(struct.pack("<Q", len(text)) + text))
        for tensor in shard.values():
            _put(file, tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)


def _put(file: RawIOBase, data: memoryview) -> None:
    done = 0
    while done < len(data):  # a write may take less than it was given
        done += file.write(data[done : done + PIECE]) or 0
