"""``stowplan frontier``: its four forms, its files, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from stowplan_agent.cli import app

SMALL = Path(__file__).parents[1] / "planning" / "records" / "small"
RECORD = SMALL / "device-03.json"


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["frontier", *(str(argument) for argument in arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_json_has_the_sizes_that_were_asked_for() -> None:
    code, out, _ = run(RECORD, "--device-memory", "1Gi,8Gi,200Gi", "--output", "json")
    document = json.loads(out)
    assert code == 0 and document["kind"] == "Frontier"
    assert [point["deviceMemory"] >> 30 for point in document["points"]] == [1, 8, 200]
    assert document["points"][0]["shortfalls"] and document["points"][-1]["status"] == "Optimal"


def test_the_table_is_for_people() -> None:
    code, out, _ = run(RECORD, "--sizes", "5")
    assert code == 0 and "slower" in out and "denoiser" in out
    assert "same compute, same link, same host" in out


@pytest.mark.parametrize("name", ["f.svg", "f.html", "f.json"])
def test_a_files_name_says_its_form(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    code, out, _ = run(RECORD, "--sizes", "4", "-o", path)
    text = path.read_text()
    assert (code, out) == (0, "")
    if name == "f.json":
        assert json.loads(text)["kind"] == "Frontier"
    else:
        ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_picture_can_go_to_standard_output() -> None:
    code, out, _ = run(RECORD, "--sizes", "3", "--output", "svg")
    assert code == 0 and out.startswith("<svg ")


def test_nothing_fits_is_an_answer() -> None:
    code, out, _ = run(RECORD, "--device-memory", "1Mi,2Mi", "--output", "json")
    assert code == 3 and {point["status"] for point in json.loads(out)["points"]} == {"Infeasible"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.json",), "cannot be read"),
        ((RECORD, "--from", "8Gi", "--to", "4Gi"), "--from 8 GiB is not below --to 4 GiB"),
        ((RECORD, "--from", "many", "--to", "4Gi"), "--from: 'many' is not a quantity"),
        ((RECORD, "--sizes", "1"), "--sizes 1 is outside 2 to 500"),
        ((RECORD, "--device-memory", "8Gi,"), "--device-memory: '' is not a quantity"),
        ((RECORD, "--device-memory", "0"), "is out of range"),
        ((RECORD, "--device-memory", "8Gi", "--to", "9Gi"), "not both"),
        ((RECORD, "-o", "frontier.txt"), "a name that ends in .json, .svg or .html"),
        ((RECORD, "-o", "nowhere/frontier.html"), "there is no folder"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[object, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
