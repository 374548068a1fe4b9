"""``stowplan estimate``: a plan marked as an estimate wherever it is printed, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stowplan_agent.cli import app


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_table_is_marked(wan_folder: Path) -> None:
    code, out, _ = run("estimate", wan_folder, "--card", "rtx-4090", "--shape", "832x480x81@40")
    said = " ".join(out.split())
    assert code == 0 and "ESTIMATE: nothing was measured" in said and "ESTIMATE, not measured: wan-of-real" in said
    assert "transformer_2" in said and "One more GiB" in said


def test_the_document_is_marked_and_holds_record_and_plan(wan_folder: Path) -> None:
    code, out, _ = run("estimate", wan_folder, "--card", "rtx-4090", "--shape", "832x480x81@40", "--output", "json")
    document = json.loads(out)
    assert code == 0 and document["kind"] == "Estimate" and document["estimate"].startswith("ESTIMATE")
    assert document["card"]["name"] == "RTX 4090" and document["plan"]["status"] == "Optimal"
    assert document["record"]["extrapolated"] is True
    assert any("the bare install has no model classes" in each for each in document["record"]["provenance"])


def test_whatever_is_made_from_its_record_is_marked_too(wan_folder: Path, tmp_path: Path) -> None:
    record, page = tmp_path / "estimate.json", tmp_path / "page.html"
    code, _, err = run("estimate", wan_folder, "--card", "l40s", "--shape", "832x480x17@20", "--record", record)
    assert code == 0 and "an estimate" in err
    for command in ("plan", "explain"):
        assert json.loads(run(command, record, "--output", "json")[1])["estimate"].startswith("ESTIMATE")
        assert run(command, record)[1].startswith("ESTIMATE: nothing was measured")
    plan = tmp_path / "plan.json"
    plan.write_text(run("plan", record, "--output", "json")[1])
    assert json.loads(run("explain", plan, "--output", "json")[1])["estimate"].startswith("ESTIMATE")
    assert "ESTIMATE: nothing was measured" in " ".join(run("explain", plan)[1].split())
    sizes = ("--device-memory", "24Gi,80Gi")
    assert json.loads(run("frontier", record, *sizes, "--output", "json")[1])["estimate"].startswith("ESTIMATE")
    assert run("frontier", record, *sizes)[1].startswith("ESTIMATE: nothing was measured")
    assert run("frontier", record, *sizes, "-o", page)[0] == 0
    assert "ESTIMATE: nothing was measured" in page.read_text()
    assert "ESTIMATE: nothing was measured" in run("frontier", record, *sizes, "--output", "svg")[1]


def test_what_cannot_fit_exits_3(wan_folder: Path) -> None:
    code, out, _ = run("estimate", wan_folder, "--card", "rtx-4070-ti", "--shape", "1920x1088x161")
    assert code == 3 and "ESTIMATE" in out and "would fit" in out
    code, out, _ = run("estimate", wan_folder, "--card", "l4", "--shape", "832x480x81", "--host-memory", "8Gi")
    assert code == 3 and "host memory" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--card", "rtx-4091", "--shape", "832x480"), "did you mean rtx-4090"),
        (("--card", "h200", "--shape", "832x480", "--shape", "480x832"), "--shape is given 2 times"),
        (("--card", "h200", "--shape", "wide"), "is not WIDTHxHEIGHT"),
        (("--card", "h200", "--shape", "833x480"), "width 833 does not suit WanPipeline"),
        (("--card", "h200", "--shape", "832x480x80"), "frames 80 does not suit"),
        (("--card", "h200", "--shape", "832x480x81@99999"), "steps"),
        (("--card", "h200", "--shape", "832x480", "--host-memory", "many"), "is not a quantity"),
        (("--card", "h200", "--shape", "832x480", "--record", "nowhere/r.json"), "there is no folder"),
    ],
)
def test_bad_input_is_one_sentence(wan_folder: Path, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run("estimate", wan_folder, *arguments)
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    code, _, err = run("estimate", tmp_path, "--card", "h200", "--shape", "832x480")
    assert code == 2 and "model_index.json" in err and err.count("\n") == 1


@pytest.mark.parametrize("shift", [1e-320, -3, 0, True, "5", [5], 1e300, float("nan")])
def test_a_shift_that_is_none_is_refused(wan_folder: Path, shift: object) -> None:
    config = wan_folder / "scheduler" / "scheduler_config.json"
    good = config.read_text()
    try:
        config.write_text(json.dumps({"flow_shift": shift}))
        code, out, err = run("estimate", wan_folder, "--card", "h200", "--shape", "832x480x81")
    finally:
        config.write_text(good)
    assert (code, out) == (2, "")
    assert "flow_shift of its config" in err and err.count("\n") == 1
