"""A checkpoint folder is read completely, or refused in one sentence that names the file or component."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan_agent.inventory.checkpoint import check_classes, diffusers_classes, read_checkpoint
from stowplan_agent.inventory.errors import InventoryError


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "absent"}))


def test_components_configs_settings_and_weights(checkpoint_folder: Path) -> None:
    checkpoint = read_checkpoint(checkpoint_folder)
    assert (checkpoint.name, checkpoint.pipeline) == ("wan", "WanPipeline")
    assert checkpoint.settings == {"boundary_ratio": None}
    assert [part.name for part in checkpoint.components] == [
        "scheduler",
        "text_encoder",
        "tokenizer",
        "transformer",
        "vae",
    ]
    assert {part.name: len(part.headers) for part in checkpoint.weighted} == {
        "text_encoder": 1,
        "transformer": 2,
        "vae": 1,
    }
    transformer = checkpoint.weighted[1]
    assert transformer.config["num_layers"] == 6
    assert len(transformer.tensors) == 14
    assert checkpoint.components[0].config == {"flow_shift": 3.0}


INDEX = "model_index.json"
SHARD = "transformer/diffusion_pytorch_model-00002-of-00002.safetensors"
SHARDS = "transformer/diffusion_pytorch_model.safetensors.index.json"
VAE = "vae/diffusion_pytorch_model.safetensors"
Damage = Callable[[Path], object]


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "weights are a folder": (lambda root: replace_by_folder(root / VAE), "is a folder or a link to nothing"),
    "weights are a link to nothing": (lambda root: replace_by_link(root / VAE, "gone"), "is a folder or a link to"),
    "weights are a link to itself": (lambda root: replace_by_link(root / VAE, Path(VAE).name), "is a folder or a link"),
    "config is a folder": (lambda root: replace_by_folder(root / "vae/config.json"), "cannot be read (Is a directory)"),
    "a name too long for a file": (
        lambda root: edit(root / INDEX, **{"a" * 300: ["diffusers", "AutoencoderKLWan"]}),
        "cannot be read (File name too long)",
    ),
    "no index": (lambda root: (root / INDEX).unlink(), "has no model_index.json"),
    "index is no JSON": (lambda root: (root / INDEX).write_text("{"), "model_index.json is not JSON"),
    "index is no text": (lambda root: (root / INDEX).write_bytes(b"\xff\xfe"), "is not JSON"),
    "index is a list": (lambda root: (root / INDEX).write_text("[]"), "no JSON object"),
    "no pipeline class": (lambda root: edit(root / INDEX, _class_name="absent"), "no pipeline class"),
    "own code": (lambda root: edit(root / INDEX, _class_name=["pipe", "P"]), "code of its own"),
    "no weights named": (
        lambda root: (root / INDEX).write_text('{"_class_name": "WanPipeline"}'),
        "no component with weights",
    ),
    "tokenizer without vocabulary": (
        lambda root: (root / "tokenizer/tokenizer.json").unlink(),
        "tokenizer (T5TokenizerFast) has no vocabulary (tokenizer.json, *.model, vocab.json, vocab.txt)",
    ),
    "component without folder": (lambda root: shutil.rmtree(root / "tokenizer"), "'tokenizer', and there is no such"),
    "component outside": (lambda root: edit(root / INDEX, **{"../wan": ["a", "B"]}), "no such folder"),
    "missing shard": (lambda root: (root / SHARD).unlink(), "-00002-of-00002.safetensors does not exist"),
    "truncated shard": (
        lambda root: (root / SHARD).write_bytes((root / SHARD).read_bytes()[:-5]),
        "-00002-of-00002.safetensors is truncated",
    ),
    "empty shard index": (lambda root: (root / SHARDS).write_text("{}"), "has no weight_map"),
    "shard outside": (
        lambda root: edit(root / SHARDS, weight_map={"a": "../x.safetensors"}),
        "outside its own folder",
    ),
    "tensor missing in shard": (
        lambda root: edit(root / SHARDS, weight_map={"gone": Path(SHARD).name}),
        "lacks tensor 'gone'",
    ),
    "missing weights": (lambda root: (root / VAE).unlink(), "has a config.json but no weights"),
    "only pickled weights": (lambda root: (root / VAE).rename(root / "vae/model.bin"), "only safetensors are read"),
    "only GGUF": (
        lambda root: (root / VAE).rename(root / "vae/vae-Q4_K.gguf"),
        "has weights only as vae-Q4_K.gguf",
    ),
    "weights misnamed": (lambda root: (root / VAE).rename(root / "vae/w.safetensors"), "it has w.safetensors"),
    "only a variant": (
        lambda root: (root / VAE).rename(root / "vae/diffusion_pytorch_model.fp16.safetensors"),
        "the variants fp16",
    ),
    "missing config": (lambda root: (root / "vae/config.json").unlink(), "has weights but no config.json"),
    "malformed config": (lambda root: (root / "vae/config.json").write_text("{'a'}"), "config.json is not JSON"),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=DAMAGES.keys())
def test_each_damage_has_its_sentence(damage: Damage, says: str, checkpoint_folder: Path) -> None:
    damage(checkpoint_folder)
    with pytest.raises(InventoryError) as refusal:
        read_checkpoint(checkpoint_folder)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_tensor_in_two_shards_is_refused(checkpoint_folder: Path) -> None:
    shutil.copy(checkpoint_folder / SHARD.replace("00002-", "00001-"), checkpoint_folder / SHARD)
    edit(
        checkpoint_folder / SHARDS,
        weight_map={"steps": Path(SHARD).name, "patch.weight": Path(SHARD.replace("00002-", "00001-")).name},
    )
    with pytest.raises(InventoryError, match="is in another shard too"):
        read_checkpoint(checkpoint_folder)


def test_paths_that_are_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="gone does not exist"):
        read_checkpoint(tmp_path / "gone")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InventoryError, match="no diffusers checkpoint"):
        read_checkpoint(tmp_path / "model.safetensors")


def test_a_variant_is_preferred_and_plain_files_are_the_fallback(
    checkpoint_folder: Path, write_safetensors: Any
) -> None:
    write_safetensors(checkpoint_folder / "vae" / "diffusion_pytorch_model.fp16.safetensors", {"a": ("F16", (4,))})
    plain, half = read_checkpoint(checkpoint_folder), read_checkpoint(checkpoint_folder, variant="fp16")
    assert list(plain.weighted[2].tensors) == ["decoder.conv.weight"]
    assert list(half.weighted[2].tensors) == ["a"]
    assert half.weighted[1] == plain.weighted[1]


def test_a_sharded_variant(checkpoint_folder: Path, write_safetensors: Any) -> None:
    shard = "model.fp16-00001-of-00001.safetensors"
    write_safetensors(checkpoint_folder / "text_encoder" / shard, {"a": ("F16", (4,))})
    index = checkpoint_folder / "text_encoder" / "model.safetensors.index.fp16.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    assert list(read_checkpoint(checkpoint_folder, variant="fp16").weighted[0].tensors) == ["a"]


def test_a_path_that_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"cannot be read \(File name too long\); give a folder that can be$"):
        read_checkpoint(tmp_path / ("a" * 300))


@pytest.mark.parametrize("vocabulary", ["spiece.model", "vocab.json", "vocab.txt"])
def test_any_vocabulary_will_do(vocabulary: str, checkpoint_folder: Path) -> None:
    (checkpoint_folder / "tokenizer/tokenizer.json").rename(checkpoint_folder / "tokenizer" / vocabulary)
    assert read_checkpoint(checkpoint_folder).components


def test_a_tokenizer_of_bytes_needs_no_vocabulary(checkpoint_folder: Path) -> None:
    (checkpoint_folder / "tokenizer/tokenizer.json").unlink()
    edit(checkpoint_folder / INDEX, tokenizer=["transformers", "ByT5Tokenizer"])
    assert read_checkpoint(checkpoint_folder).components


KNOWN = frozenset({"WanPipeline", "WanTransformer3DModel", "AutoencoderKLWan", "UniPCMultistepScheduler"})


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (KNOWN - {"WanPipeline"} | {"WanPipelin3"}, "no class WanPipeline for the pipeline; did it mean WanPipelin3"),
        (KNOWN - {"AutoencoderKLWan"}, "no class AutoencoderKLWan for the component vae; install"),
    ],
)
def test_unknown_classes_are_named(known: set[str], says: str, checkpoint_folder: Path) -> None:
    with pytest.raises(InventoryError) as refusal:
        check_classes(read_checkpoint(checkpoint_folder), known)
    assert says in str(refusal.value)


def test_the_installed_diffusers_knows_its_own_classes(checkpoint_folder: Path) -> None:
    known = diffusers_classes()
    assert known is not None
    assert {"FluxPipeline", "WanPipeline"} <= known
    check_classes(read_checkpoint(checkpoint_folder), known)


def test_the_room_imports_neither_torch_nor_diffusers() -> None:
    code = "import sys, stowplan_agent.inventory as room; room.diffusers_classes(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "diffusers", "transformers", "safetensors", "huggingface_hub", "numpy"} & set(modules)
