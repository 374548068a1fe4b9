"""The commands on a real checkpoint, chained: calibrate writes what plan and cost read; bad input is one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord

CARD = ("--accelerator", "emulated", "--device-memory", "40Mi", "--device-reserve", "1Mi", "--dtype", "float32")
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def stowplan() -> Command:
    def run(*arguments: object) -> Result:
        threads = torch.get_num_threads()
        try:
            return CliRunner().invoke(app, [str(argument) for argument in arguments])
        finally:
            torch.set_num_threads(threads)

    return run


@pytest.fixture(scope="module")
def record(stowplan: Command, tiny_wan: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "r.json"
    done = stowplan("calibrate", tiny_wan, "--shape", "32x32x5@2", *CARD, "--record", path, "--output", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads(path.read_text())
    assert f"wrote {path}; next: stowplan plan {path}" in " ".join(done.stderr.split())
    for phase in ("Inventory", "Load", "Warm", "Probe", "WarmAgain"):
        assert phase in done.stderr
    return path


def test_calibrate_writes_a_valid_record(record: Path) -> None:
    measured = CalibrationRecord.read(record)
    assert (measured.model.name, measured.model.pipeline) == ("tiny-wan", "WanPipeline")
    assert not measured.extrapolated
    assert [(one.width, one.height, one.frames, one.steps) for one in measured.workloads] == [(32, 32, 5, 2)]
    denoise = next(interval for interval in measured.intervals if interval.component == "transformer")
    assert denoise.runs[0].passes == 2 * 2  # with and without the prompt
    (rank,) = measured.ranks
    assert rank.capacity_bytes == 40 << 20
    assert rank.link.pinned_bytes_per_second == pytest.approx(4e8)


def test_plan_and_cost_read_it_and_agree(stowplan: Command, record: Path, tmp_path: Path) -> None:
    planned = stowplan("plan", record, "--output", "json")
    assert planned.exit_code == 0, planned.output
    plan = Plan.from_json(json.loads(planned.stdout))
    assert plan.status == "Optimal" and plan.placement is not None and plan.cost is not None
    placements = tmp_path / "placements.jsonl"
    everything = Placement.from_json(
        {"components": [{"name": part.name, "mode": "Resident"} for part in plan.placement.components]}
    )
    placements.write_text(f"{plan.placement.canonical()}\n{everything.canonical()}\n")
    priced = stowplan("cost", record, placements)
    assert priced.exit_code == 0, priced.output
    own, resident = (json.loads(line) for line in priced.stdout.splitlines())
    assert own["feasible"] and own["seconds"] == pytest.approx(plan.cost.seconds)
    assert not resident["feasible"] and resident["seconds"] <= own["seconds"]


def test_tables_for_people(stowplan: Command, record: Path, tiny_wan: Path) -> None:
    for arguments in (("inventory", tiny_wan, "--dtype", "float32"), ("plan", record)):
        shown = stowplan(*arguments)
        assert shown.exit_code == 0, shown.output
        for name in ("vae", "text_encoder", "transformer"):
            assert name in shown.stdout


def test_a_larger_card_is_a_flag_and_a_smaller_one_an_answer(stowplan: Command, record: Path) -> None:
    large = Plan.from_json(json.loads(stowplan("plan", record, "--device-memory", "96Mi", "--output", "json").stdout))
    assert large.placement is not None
    assert {entry.mode for entry in large.placement.components} == {"Resident"}
    small = stowplan("plan", record, "--device-memory", "8Mi", "--output", "json")
    assert small.exit_code == 3
    assert json.loads(small.stdout)["status"] == "Infeasible"


def broken(tiny_wan: Path, folder: Path, change: Callable[[Path], None]) -> Path:
    copy = folder / "tiny-wan"
    shutil.copytree(tiny_wan, copy)
    change(copy)
    return copy


def lose(copy: Path) -> None:
    next((copy / "vae").glob("*.safetensors")).unlink()


def truncate(copy: Path) -> None:
    path = next((copy / "transformer").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def rename(copy: Path) -> None:
    index = copy / "model_index.json"
    values = json.loads(index.read_text())
    index.write_text(json.dumps(values | {"_class_name": "WanPipelin"}))


def pickle(copy: Path) -> None:
    (copy / "transformer" / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lose, ("vae", "no weights")),
        (truncate, ("transformer", "safetensors", "truncated")),
        (rename, ("has no class WanPipelin", "did it mean WanPipeline?")),
        (pickle, ("transformer", "config.json")),
    ],
)
def test_a_broken_checkpoint_is_refused_and_nothing_is_written(
    stowplan: Command, tiny_wan: Path, tmp_path: Path, change: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    record = tmp_path / "r.json"
    done = stowplan("calibrate", broken(tiny_wan, tmp_path, change), "--shape", "64x64x5@4", *CARD, "--record", record)
    assert_one_sentence(done, words)
    assert not record.exists()


BAD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"--shape": "64x64x6@4"}, ("frames 6", "4 x k + 1", "use 5 or 9")),
    ({"--shape": "60x64x5@4"}, ("width 60", "multiples of 16", "use 48 or 64")),
    ({"--shape": "-64x64x5@4"}, ("'-64x64x5@4'", "WIDTHxHEIGHT")),
    ({"--shape": "999999999x64x5@4"}, ("width", "16384")),
    ({"--shape": "64x64x5@0"}, ("steps", "greater than or equal to 1")),
    ({"--shape": "large"}, ("'large'", "WIDTHxHEIGHT")),
    ({"--dtype": "int4"}, ("dtype", "bfloat16", "int4")),
    ({"--device-memory": "-40Mi"}, ("--device-memory", "negative")),
    ({"--device-memory": "9Ei"}, ("--device-memory", "out of range")),
    ({"--device-memory": "40 MB"}, ("--device-memory", "'40 MB'", "40 MB")),
    ({"--device-reserve": "much"}, ("--device-reserve", "'much'")),
    ({"--host-memory": "16Mi"}, ("host memory", "the pod's memory limit (16 MiB)", "raise it by")),
    ({"--host-memory": "0"}, ("memory", "greater than or equal to 1")),
    ({"--device-memory": None}, ("the emulated accelerator needs a device memory",)),
    ({"--device-memory": "4Mi"}, ("text_encoder needs", "use a device with")),
    ({"--accelerator": "tpu"}, ("'tpu'", "cuda or emulated")),
]


@pytest.mark.parametrize(("changed", "words"), BAD)
def test_bad_options_are_one_sentence(
    stowplan: Command, tiny_wan: Path, tmp_path: Path, changed: dict[str, str | None], words: tuple[str, ...]
) -> None:
    options: dict[str, str | None] = {"--shape": "64x64x5@4", "--record": str(tmp_path / "r.json")}
    options |= dict(zip(CARD[::2], CARD[1::2], strict=True)) | changed
    flags = [part for option, value in options.items() if value is not None for part in (option, value)]
    assert_one_sentence(stowplan("calibrate", tiny_wan, *flags), words)
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize("command", ["calibrate", "agent"])
def test_a_checkpoint_that_does_not_exist(stowplan: Command, tmp_path: Path, command: str) -> None:
    done = stowplan(command, tmp_path / "nowhere", "--shape", "64x64x5@4", *CARD)
    assert_one_sentence(done, (f"file://{tmp_path}/nowhere", "does not exist"))


def test_an_unknown_fault_is_refused(stowplan: Command, tiny_wan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_FAULTS", "validate.everything")
    for command in ("calibrate", "agent"):
        done = stowplan(command, tiny_wan, "--shape", "64x64x5@4", *CARD)
        assert_one_sentence(done, ("'validate.everything'", "choose from apply.N"))


def test_a_deadline_of_no_phase_is_refused(stowplan: Command, tiny_wan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_PHASE_DEADLINES", "Loading=5")
    for command in ("calibrate", "agent"):
        done = stowplan(command, tiny_wan, "--shape", "64x64x5@4", *CARD)
        assert_one_sentence(done, ("STOWPLAN_PHASE_DEADLINES names 'Loading'", "choose from Inventory, Load, "))


def test_a_record_that_cannot_be_written_is_known_before_minutes_of_measuring(
    stowplan: Command, tiny_wan: Path, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "r.json"
    done = stowplan("calibrate", tiny_wan, "--shape", "64x64x5@4", *CARD, "--record", path)
    assert_one_sentence(done, (str(path), "cannot be written", "no folder"))
    assert "Inventory" not in done.stderr


def test_malformed_records_and_placements(stowplan: Command, record: Path, tmp_path: Path) -> None:
    malformed = tmp_path / "malformed.json"
    malformed.write_text('{"kind": ')
    assert_one_sentence(stowplan("plan", malformed), (str(malformed), "is not JSON"))
    assert_one_sentence(stowplan("plan", tmp_path / "none.json"), ("none.json", "cannot be read"))
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(json.loads(record.read_text()) | {"ranks": []}))
    assert_one_sentence(stowplan("plan", wrong), (str(wrong), "ranks"))
    placements = tmp_path / "placements.jsonl"
    placements.write_text('{"components": [{"name": "vae", "mode": "Nowhere"}]}\n')
    assert_one_sentence(stowplan("cost", record, placements), ("placements.jsonl", "mode"))


def test_a_placement_of_an_unknown_component_is_refused_by_name(
    stowplan: Command, record: Path, tmp_path: Path
) -> None:
    placements = tmp_path / "placements.jsonl"
    placements.write_text('{"components": [{"name": "upscaler", "mode": "Resident"}]}\n')
    done = stowplan("cost", record, placements)
    assert_one_sentence(done, ("placements.jsonl, line 1", "component upscaler is not in the record, which has "))


def assert_one_sentence(done: Result, words: tuple[str, ...]) -> None:
    """One line on standard error beside the phases, no traceback, nothing on standard output."""
    assert done.exit_code in (1, 2, 3), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    said = [line for line in done.stderr.splitlines() if line.startswith("stowplan: ")]
    assert len(said) == 1, done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    for word in words:
        assert word in said[0]
