"""The inventory counts every byte once, at the precision of loading; the fingerprint is of structure, not of saving."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stowplan_agent.inventory.checkpoint import read_checkpoint
from stowplan_agent.inventory.components import GroupInventory, take_inventory, tied_names
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.fingerprint import fingerprint
from stowplan_agent.inventory.tensors import TensorInfo, check_dtype, loaded


def test_bytes_groups_and_files(checkpoint_folder: Path) -> None:
    inventory = take_inventory(read_checkpoint(checkpoint_folder), "float32")
    assert (inventory.model, inventory.pipeline, inventory.dtype) == ("wan", "WanPipeline", "float32")
    encoder, transformer, vae = inventory.components
    assert encoder.groups == (GroupInventory("encoder.block", (512,) * 4),)
    assert transformer.groups == (GroupInventory("blocks", (2048,) * 6),)
    assert (encoder.loose_bytes, transformer.loose_bytes, vae.loose_bytes) == (2048, 512 + 256, 1792)
    assert vae.tensor_bytes == 4 * 4 * 27 * 4
    assert transformer.disk_bytes == sum(
        file.stat().st_size for file in (checkpoint_folder / "transformer").glob("*.safetensors")
    )
    assert inventory.total_bytes == sum(component.total_bytes for component in inventory.components)


def test_floats_are_converted_and_integers_are_not(checkpoint_folder: Path) -> None:
    checkpoint = read_checkpoint(checkpoint_folder)
    full, half = take_inventory(checkpoint, "float32"), take_inventory(checkpoint, "bfloat16")
    assert full.components[1].dtype_bytes == {"F32": 512 + 12 * 1024, "I64": 24}
    assert half.components[1].dtype_bytes == {"BF16": 256 + 12 * 512, "I64": 24}
    assert half.components[1].groups == (GroupInventory("blocks", (1024,) * 6),)


@pytest.mark.parametrize("name", ["float64", "int8", "fp16", "BF16", ""])
def test_other_dtypes_are_refused_with_the_list(name: str) -> None:
    with pytest.raises(InventoryError, match="bfloat16, float16, float32"):
        check_dtype(name)


@pytest.mark.parametrize(
    ("stored", "nbytes", "target", "expected"),
    [
        ("F32", 64, "BF16", 32),
        ("BF16", 32, "F32", 64),
        ("F64", 64, "F16", 16),
        ("F8_E4M3", 8, "BF16", 8),
        ("I8", 8, "F32", 8),
    ],
)
def test_loaded_bytes(stored: str, nbytes: int, target: str, expected: int) -> None:
    assert loaded(TensorInfo((8,), stored, nbytes), target).nbytes == expected


TABLE, OTHER = TensorInfo((64, 8), "F32", 2048), TensorInfo((64, 16), "F32", 4096)


@pytest.mark.parametrize(
    ("config", "tensors", "tied"),
    [
        ({"vocab_size": 64}, {"shared": TABLE, "embed": TABLE}, ("embed",)),
        ({"vocab_size": 64, "tie_word_embeddings": True}, {"shared": TABLE, "a": TABLE, "b": TABLE}, ("a", "b")),
        ({"vocab_size": 64, "tie_word_embeddings": False}, {"shared": TABLE, "head": TABLE}, ()),
        ({"vocab_size": 64}, {"shared": TABLE, "head": OTHER}, ()),
        ({"vocab_size": 65}, {"q": TABLE, "k": TABLE}, ()),
        ({}, {"q": TABLE, "k": TABLE}, ()),
    ],
)
def test_tied_tables_are_counted_once(config: Any, tensors: dict[str, TensorInfo], tied: tuple[str, ...]) -> None:
    assert tied_names(tensors, config) == tied


def test_a_tied_table_takes_no_bytes_in_the_inventory(checkpoint_folder: Path, write_safetensors: Any) -> None:
    before = take_inventory(read_checkpoint(checkpoint_folder), "float32").components[0]
    names = {"shared.weight": ("F32", (64, 8)), "encoder.embed_tokens.weight": ("F32", (64, 8))}
    blocks = {f"encoder.block.{n}.layer.{part}.weight": ("F32", (8, 8)) for n in range(4) for part in range(2)}
    write_safetensors(checkpoint_folder / "text_encoder/model.safetensors", names | blocks)
    after = take_inventory(read_checkpoint(checkpoint_folder), "float32").components[0]
    assert after.tied == ("encoder.embed_tokens.weight",)
    assert replace(after, tied=(), disk_bytes=before.disk_bytes) == before


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def merge_shards(root: Path, write: Any) -> None:
    names = {f"blocks.{n}.{part}": ("F32", (16, 16)) for n in range(6) for part in ("attn.q", "norm1.weight")}
    for file in (root / "transformer").glob("*safetensors*"):
        file.unlink()
    whole = {"patch.weight": ("F32", (16, 8)), "steps": ("I64", (3,))} | names
    write(root / "transformer/diffusion_pytorch_model.safetensors", whole)


CHANGES: dict[str, tuple[Callable[[Path, Any], object], bool]] = {
    "nothing": (lambda root, write: None, True),
    "another name of the folder": (lambda root, write: root.rename(root.with_name("other")), True),
    "saved by another version": (
        lambda root, write: change(root / "text_encoder/config.json", transformers_version="9"),
        True,
    ),
    "one file instead of shards": (merge_shards, True),
    "another config": (lambda root, write: change(root / "transformer/config.json", num_layers=7), False),
    "another scheduler setting": (
        lambda root, write: change(root / "scheduler/scheduler_config.json", flow_shift=5),
        False,
    ),
    "another pipeline setting": (lambda root, write: change(root / "model_index.json", boundary_ratio=0.9), False),
    "another class": (lambda root, write: change(root / "model_index.json", _class_name="WanVideoPipeline"), False),
    "another shape": (
        lambda root, write: write(
            root / "vae/diffusion_pytorch_model.safetensors", {"decoder.conv.weight": ("F32", (4,))}
        ),
        False,
    ),
}


@pytest.mark.parametrize(("edit", "same"), CHANGES.values(), ids=CHANGES.keys())
def test_fingerprint(
    edit: Callable[[Path, Any], object], same: bool, checkpoint_folder: Path, write_safetensors: Any
) -> None:
    before = fingerprint(read_checkpoint(checkpoint_folder))
    edit(checkpoint_folder, write_safetensors)
    (folder,) = checkpoint_folder.parent.iterdir()
    assert before.startswith("sha256:") and len(before) == 7 + 64
    assert (fingerprint(read_checkpoint(folder)) == before) is same


def test_the_fingerprint_does_not_read_weights(checkpoint_folder: Path) -> None:
    before = fingerprint(read_checkpoint(checkpoint_folder))
    file = checkpoint_folder / "vae/diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\x01\x02\x03\x04")
    assert fingerprint(read_checkpoint(checkpoint_folder)) == before
