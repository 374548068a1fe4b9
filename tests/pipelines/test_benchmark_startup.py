"""The start-up benchmark itself: its checkpoint is what the library writes, its two starts are what it says."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from stowplan_agent.pipeline import HostedPipeline

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("benchmarks", "examples")]
startup, checkpoint_folder, tiny_models = map(importlib.import_module, ("startup", "checkpoint_folder", "tiny_models"))
SHARD = 4 << 20


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One pipeline, in bfloat16, as we and as the library write it."""
    pipeline = tiny_models.tiny_wan().to(torch.bfloat16)
    folder = tmp_path_factory.mktemp("written")
    checkpoint_folder.write_folder(pipeline, folder / "ours", shard_bytes=SHARD)
    pipeline.save_pretrained(folder / "theirs", max_shard_size=SHARD)
    return folder / "ours", folder / "theirs"


def test_the_folder_has_the_files_that_the_library_writes(written: tuple[Path, Path]) -> None:
    ours, theirs = ({path.relative_to(folder) for path in folder.rglob("*.json")} for folder in written)
    assert ours == theirs
    for name in ("model_index.json", "transformer/config.json", "text_encoder/config.json", "vae/config.json"):
        first, second = (json.loads((folder / name).read_text()) for folder in written)
        assert first == second


def test_the_folder_is_loaded_to_the_same_weights(written: tuple[Path, Path]) -> None:
    ours, theirs = (HostedPipeline.load(folder, "bfloat16", torch.device("cpu")) for folder in written)
    for hosted in (ours, theirs):
        hosted.deferred.settle_all()
    for name, module in theirs.modules().items():
        expected, found = module.state_dict(), ours.modules()[name].state_dict()
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


def test_the_second_start_reuses_what_the_first_proved(tmp_path: Path) -> None:
    startup.main(["--tiny", "--folder", str(tmp_path / "wan"), "--output", str(tmp_path / "document.json")])
    document = json.loads((tmp_path / "document.json").read_text())
    cold, warm = document["starts"]
    assert [one["phase"] for one in (cold, warm)] == ["Ready", "Ready"], document
    assert {"Probe", "Solve", "Validate"} <= {name for name, _ in cold["phases"]}
    claims = document["claims"]
    assert claims["warmReusedTheStoredStart"], warm
    assert claims["samePlacement"]
    for one in (cold, warm):
        assert one["processSeconds"] >= one["startSeconds"] >= sum(seconds for _, seconds in one["phases"]) - 0.1
