"""``stowplan explain``: every component's reason, one component alone, a finished plan, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stowplan_agent.cli import app

RECORDS = Path(__file__).parents[1] / "planning" / "records"
SMALL = RECORDS / "small"


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_every_component_says_what_it_is_what_it_lost_and_why() -> None:
    record = json.loads((SMALL / "device-03.json").read_text())
    code, out, _ = run("explain", SMALL / "device-03.json", "--output", "json")
    answer = json.loads(out)
    assert code == 0 and answer["kind"] == "Explanation" and answer["status"] == "Optimal" and answer["seconds"] > 0
    assert [one["component"] for one in answer["components"]] == [one["name"] for one in record["components"]]
    assert all(one["chosen"] and one["because"] for one in answer["components"])
    assert any("bytes" in one["because"] and "short" in one["because"] for one in answer["components"])
    assert answer["worth"]["deviceSecondsPerGib"] is not None
    assert "estimate" not in answer


def test_the_table_is_for_people() -> None:
    code, out, _ = run("explain", SMALL / "device-03.json")
    assert code == 0
    assert "chosen" in out and "because" in out and "denoiser" in out
    assert "One more GiB of device memory" in out and "One more GiB of host memory" in out


def test_one_component_alone() -> None:
    code, out, _ = run("explain", SMALL / "device-03.json", "--component", "denoiser", "--output", "json")
    assert code == 0 and [one["component"] for one in json.loads(out)["components"]] == ["denoiser"]
    code, out, _ = run("explain", SMALL / "device-03.json", "--component", "denoiser")
    assert code == 0 and out.count("chosen") == 1


def test_a_plan_explains_itself(tmp_path: Path) -> None:
    _, planned, _ = run("plan", SMALL / "device-03.json", "--output", "json")
    path = tmp_path / "plan.json"
    path.write_text(planned)
    _, fresh, _ = run("explain", SMALL / "device-03.json", "--output", "json")
    code, out, _ = run("explain", path, "--output", "json")
    assert code == 0 and json.loads(out)["components"] == json.loads(fresh)["components"]
    code, _, err = run("explain", path, "--device-memory", "8Gi")
    assert code == 2 and "is a Plan" in err and err.count("\n") == 1


def test_what_does_not_fit_says_what_would() -> None:
    code, out, _ = run("explain", SMALL / "infeasible-by-a-byte-01.json", "--output", "json")
    answer = json.loads(out)
    assert code == 3 and answer["status"] == "Infeasible"
    assert answer["shortfalls"][0]["shortBytes"] == 1 and answer["wouldFit"]
    code, out, _ = run("explain", SMALL / "infeasible-by-a-byte-01.json")
    assert code == 3 and "no placement fits" in out and "would fit: " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.json",), "cannot be read"),
        ((SMALL,), "cannot be read"),
        ((SMALL / "device-03.json", "--component", "unet"), "unet is not in"),
        ((SMALL / "device-03.json", "--device-memory", "many"), "is not a quantity"),
        ((SMALL / "moves-02.current.json",), "CalibrationRecord field"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[object, ...], words: str) -> None:
    code, out, err = run("explain", *arguments)
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1
