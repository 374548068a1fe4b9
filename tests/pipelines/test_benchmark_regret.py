"""The regret benchmark itself, on a tiny pipeline and the emulated card, where what must come out is known."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stowplan_agent.planning import cost, solve, with_device_memory
from stowplan_agent.weights.loading.files import MappedFiles
from stowplan_api.record import CalibrationRecord

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
regret, contest, real_wan, rival_placements = map(
    importlib.import_module, ("regret", "contest", "real_wan", "rival_placements")
)

CAP = 42
"""MiB: a part of the denoiser streams."""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("regret") / "document.json"
    regret.main(["--tiny", "--caps", str(CAP), "--budget-seconds", "0", "--output", str(path)])
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_plan_is_compared_with_twelve_rivals_that_ran(document: dict[str, Any]) -> None:
    (row,) = document["caps"]
    assert row["rivals"] == contest.RIVALS
    assert [one["outcome"] for one in row["rows"]] == ["ran"] * (1 + contest.RIVALS)
    assert row["bitEqual"]
    assert row["best"]["seconds"] == min(
        min(row["pairs"].get(one["name"], [one["seconds"]])) for one in row["rows"][1:]
    )


def test_on_a_card_that_is_as_modelled_the_plan_is_the_best(document: dict[str, Any]) -> None:
    assert document["caps"][0]["regret"] <= 1e-3
    assert document["claims"]["regretAtMost2Percent"]


def test_every_option_of_diffusers_runs_to_the_same_output(document: dict[str, Any]) -> None:
    (row,) = document["caps"]
    outcomes = {one["name"]: one["outcome"] for one in row["diffusers"]}
    assert set(outcomes.values()) == {"ran"}, row["diffusers"]
    assert {"model offload", "no offload"} < set(outcomes)
    assert {one["digest"] for one in row["diffusers"]} == {row["rows"][0]["digest"]}


def test_rivals_fit_and_are_unlike_each_other_and_the_plan(document: dict[str, Any]) -> None:
    record = with_device_memory(CalibrationRecord.model_validate(document["record"]), CAP << 20)
    plan = solve(record).placement
    assert plan is not None
    found = [placement for _, placement in rival_placements.rivals(record, plan)]
    assert all(cost(record, placement).feasible for placement in found)
    assert len({rival_placements.same(record, placement) for placement in (plan, *found)}) == 1 + len(found)


def test_mapped_weights_are_stretches_of_the_file_that_the_engine_reads_by_file(tmp_path: Path) -> None:
    noise = real_wan.random_file(tmp_path / "noise", 1 << 20, block=1 << 16)
    with torch.device("meta"):
        module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 512), torch.nn.LayerNorm(512))
    real_wan.map_weights(module.to(torch.bfloat16), noise)
    matrices = [weight for weight in module.parameters() if weight.dim() > 1]
    assert len({weight.untyped_storage()._cdata for weight in matrices}) == len(matrices)
    files = MappedFiles()
    for weight in matrices:
        assert weight.is_contiguous()
        flat = torch.empty(0, dtype=torch.uint8).set_(weight.untyped_storage(), 0, (weight.nbytes,), (1,))
        stretch, read = files.find(flat), torch.empty(weight.nbytes, dtype=torch.uint8)
        assert stretch is not None
        stretch.read(0, read)
        assert torch.equal(read, flat)
        assert weight.float().std() == pytest.approx(real_wan.STD, rel=0.05)
