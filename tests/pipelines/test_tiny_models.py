"""The tiny checkpoints load like any other, run, and are the same bytes each time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline

MIB = 1 << 20
NAMES = ["tiny-wan", "tiny-wan-two-experts", "tiny-flux"]


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def weight_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def run(pipe: Any, seed: int = 0, prompt: str = "a red fox runs over the sea") -> np.ndarray[Any, Any]:
    frames = {"num_frames": 5} if "Wan" in type(pipe).__name__ else {}
    call = {"prompt": prompt, "width": 64, "height": 64, "num_inference_steps": 3, "output_type": "np"}
    output = pipe(**call, **frames, generator=torch.Generator("cpu").manual_seed(seed))
    return np.asarray(output.frames if frames else output.images)


@pytest.fixture(scope="module", params=NAMES)
def pipe(request: pytest.FixtureRequest, write_tiny: Callable[[str], Path]) -> Any:
    loaded = DiffusionPipeline.from_pretrained(write_tiny(request.param), local_files_only=True)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def test_same_seed_gives_the_same_finite_output_and_another_seed_another(pipe: Any) -> None:
    first, again, other = run(pipe), run(pipe), run(pipe, seed=1)
    assert first.shape in {(1, 5, 64, 64, 3), (1, 64, 64, 3)}
    assert np.isfinite(first).all()
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_the_prompt_reaches_the_output(pipe: Any) -> None:
    assert run(pipe).tobytes() != run(pipe, prompt="a big green cat sleeps").tobytes()


def test_every_repeated_block_reaches_the_output(pipe: Any) -> None:
    """A placement that loses one block must be visible in the output, or bit-equality proves nothing."""
    before = run(pipe).tobytes()
    stacks = [module for module in pipe.transformer.children() if isinstance(module, torch.nn.ModuleList)]
    for block in [stack[index] for stack in stacks if len(stack) >= 4 for index in (0, len(stack) - 1)]:
        weight = max(block.parameters(), key=lambda parameter: parameter.numel())
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.zero_()
        changed = run(pipe).tobytes()
        with torch.no_grad():
            weight.copy_(kept)
        assert changed != before
    assert run(pipe).tobytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_size_is_small_but_placement_matters(name: str, write_tiny: Callable[[str], Path]) -> None:
    folder = write_tiny(name)
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    encoder = "text_encoder_2" if name == "tiny-flux" else "text_encoder"
    assert total < 64 * MIB
    assert 8 * MIB <= weight_bytes(folder / encoder) <= 12 * MIB
    assert 16 * MIB <= weight_bytes(folder / "transformer") <= 24 * MIB
    assert 1 * MIB <= weight_bytes(folder / "vae") <= 4 * MIB


@pytest.mark.parametrize("name", NAMES)
def test_writing_again_gives_the_same_bytes(
    name: str, write_tiny: Callable[[str], Path], tiny_models: ModuleType, tmp_path: Path
) -> None:
    first = digests(write_tiny(name))
    assert digests(tiny_models.write_model(name, tmp_path / name)) == first
    assert [path.name for path in tmp_path.iterdir()] == [name]  # no scratch folder is left


def test_sharded_and_single_files_both_occur(tiny_wan: Path) -> None:
    index = json.loads((tiny_wan / "transformer" / "diffusion_pytorch_model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    assert (tiny_wan / "vae" / "diffusion_pytorch_model.safetensors").is_file()


def test_two_experts_differ_and_the_boundary_is_declared(tiny_wan_two_experts: Path) -> None:
    index = json.loads((tiny_wan_two_experts / "model_index.json").read_text())
    assert 0 < index["boundary_ratio"] < 1
    first, second = digests(tiny_wan_two_experts / "transformer"), digests(tiny_wan_two_experts / "transformer_2")
    shards = [name for name in first if name.endswith(".safetensors")]
    assert first.keys() == second.keys()
    assert all(first[name] != second[name] for name in shards)


def test_both_experts_run_within_three_steps(tiny_wan_two_experts: Path) -> None:
    pipe = DiffusionPipeline.from_pretrained(tiny_wan_two_experts, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    passes = {"transformer": 0, "transformer_2": 0}
    for name in passes:

        def count(*_: object, name: str = name) -> None:
            passes[name] += 1

        getattr(pipe, name).register_forward_hook(count)
    run(pipe)
    assert passes["transformer"] > 0 and passes["transformer_2"] > 0
    assert sum(passes.values()) == 3 * 2  # classifier-free guidance runs each step twice


def test_the_tokenizers_split_words(pipe: Any) -> None:
    ids = pipe.tokenizer("a red fox").input_ids
    assert ids != pipe.tokenizer("a big fox").input_ids
    assert pipe.tokenizer.unk_token_id not in ids[:-1]
    assert "red fox" in pipe.tokenizer.decode(ids, skip_special_tokens=True)


def test_command_line_replaces_a_checkpoint_and_refuses_other_folders(
    tiny_models: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "letters"
    foreign.mkdir()
    (foreign / "note.txt").write_text("keep me")
    assert tiny_models.main(["tiny-flux", str(foreign)]) == 2
    assert "is no checkpoint" in capsys.readouterr().err
    assert [path.name for path in foreign.iterdir()] == ["note.txt"]

    target = tmp_path / "model"
    target.mkdir()
    (target / "model_index.json").write_text("{}")
    assert tiny_models.main(["tiny-wan", str(target)]) == 0
    assert "random weights" in capsys.readouterr().out
    assert json.loads((target / "model_index.json").read_text())["_class_name"] == "WanPipeline"


@pytest.mark.parametrize("name", ["tiny-wan"])
def test_anybody_may_read_a_checkpoint(write_tiny: Callable[[str], Path], name: str) -> None:
    """A pod runs as another user than the one who wrote the files."""
    for path in write_tiny(name).rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, path
