"""One request of a record: its numbers are the cost model's own, and the page and the table say them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_agent.planning import cost, seed_placement, solve, with_device_memory
from stowplan_agent.planning.limits import reserve_bytes
from stowplan_agent.report.request import Request, requests_of
from stowplan_agent.report.request_facts import headline, percent, size
from stowplan_agent.report.request_json import request_json
from stowplan_agent.report.request_page import request_page
from stowplan_agent.report.request_picture import timeline
from stowplan_agent.report.request_seconds import seconds_bars
from stowplan_agent.report.sizes import GIB
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord

RECORDS = Path(__file__).parents[1] / "planning" / "records"
NAMES = sorted(str(path.relative_to(RECORDS)) for path in RECORDS.rglob("*.json") if ".current" not in path.name)


def record_of(name: str) -> CalibrationRecord:
    return CalibrationRecord.read(RECORDS / name)


def fastest(record: CalibrationRecord) -> tuple[Request, ...]:
    plan = solve(record)
    return requests_of(record, plan.placement or seed_placement(record.components, len(record.ranks)), plan)


def words(text: str) -> str:
    return " ".join(ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n")).itertext())


def weighted_seconds(found: tuple[Request, ...]) -> float:
    weights = sum(one.workload.weight for one in found)
    return sum(one.seconds * one.workload.weight for one in found) / weights


@pytest.mark.parametrize("name", NAMES)
def test_stages_add_up_to_what_the_cost_model_says(name: str) -> None:
    record = record_of(name)
    placement = seed_placement(record.components, len(record.ranks))
    found, price = requests_of(record, placement), cost(record, placement)
    assert weighted_seconds(found) == pytest.approx(price.seconds, rel=1e-9)
    rank = record.ranks.index(found[0].rank)
    for request in found:
        for before, after in zip(request.stages, request.stages[1:], strict=False):
            assert after.start == pytest.approx(before.start + before.seconds)
        for stage in request.stages:
            assert stage.peak == price.device_bytes[stage.interval][rank]
            assert stage.reserve == reserve_bytes(record, record.intervals[stage.interval], request.rank)
            parts = stage.layers + stage.outside_layers + stage.waiting
            assert parts == pytest.approx(stage.seconds, rel=1e-6, abs=1e-9)


@given(st.sampled_from([name for name in NAMES if name.startswith("small/")]), st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_a_request_fits_exactly_where_a_plan_does(name: str, sixteenths: int) -> None:
    record = with_device_memory(record_of(name), sixteenths * GIB // 16)
    plan = solve(record)
    if plan.placement is not None:
        assert all(one.left(stage) >= 0 for one in requests_of(record, plan.placement, plan) for stage in one.stages)


def test_no_time_waits_where_everything_is_resident(image_record: CalibrationRecord) -> None:
    (found,) = fastest(with_device_memory(image_record, 200 * GIB))
    assert found.waiting == 0
    assert all(share.visiting == 0 for stage in found.stages for share in stage.held)


def test_what_streams_waits_and_is_there_for_its_stage_only(image_record: CalibrationRecord) -> None:
    (found,) = requests_of(image_record, seed_placement(image_record.components, 1))
    assert found.waiting > 0
    for stage in found.stages:
        assert {share.component for share in stage.held if share.visiting} <= {stage.component}


def test_a_workload_skips_the_stages_that_it_does_not_run(image_record: CalibrationRecord) -> None:
    first = image_record.intervals[0]
    idle = first.model_copy(update={"runs": tuple(run.model_copy(update={"passes": 0}) for run in first.runs)})
    record = image_record.model_copy(update={"intervals": (idle, *image_record.intervals[1:])})
    (found,) = requests_of(record, seed_placement(record.components, 1))
    assert [stage.interval for stage in found.stages] == list(range(1, len(record.intervals)))
    assert [stage.number for stage in found.stages] == list(range(1, len(record.intervals)))


def test_the_json_has_bytes_and_seconds(image_record: CalibrationRecord) -> None:
    (found,) = fastest(image_record)
    value = json.loads(json.dumps(request_json(found)))
    assert value["kind"] == "RequestTimeline"
    assert value["seconds"] == pytest.approx(sum(stage["seconds"] for stage in value["stages"]))
    assert value["peakBytes"] == max(stage["peakBytes"] for stage in value["stages"])
    assert Placement.model_validate(value["placement"]) == found.placement
    for stage in value["stages"]:
        weights = sum(part["alwaysBytes"] + part["visitingBytes"] for part in stage["components"])
        assert stage["peakBytes"] == weights + stage["activationBytes"] + stage["outsideBytes"]


def test_the_page_is_whole_and_needs_nothing_else(image_record: CalibrationRecord) -> None:
    found = fastest(image_record)
    text, said = request_page(found), words(request_page(found))
    assert text.startswith("<!DOCTYPE html>")
    assert "<script" not in text and "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert re.findall(r"(?:href=\"(?!#)|src=)|url\(|https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert headline(found[0]) in said
    for stage in found[0].stages:
        assert f"{stage.number} {stage.name}" in said and size(stage.peak) in said
    assert all(part.name in said for part in image_record.components)
    assert all(line in said for line in image_record.provenance)


@pytest.mark.parametrize("name", NAMES)
def test_every_record_can_be_drawn(name: str) -> None:
    record = record_of(name)
    found = requests_of(record, seed_placement(record.components, len(record.ranks)))
    for text in (request_page(found), timeline(found[0]), seconds_bars(found[0])):
        assert "nan" not in words(text) and 'width="-' not in text and 'height="-' not in text


def test_the_picture_shows_each_stack_in_full(image_record: CalibrationRecord) -> None:
    """The heights of a stage's pieces are in proportion to its bytes; the capacity is a line above them."""
    (found,) = fastest(image_record)
    root = ElementTree.fromstring(timeline(found, style=False))
    rects = [one for one in root if one.tag.endswith("rect") and float(one.get("y", "0")) > 80]
    total = sum(float(one.get("height", "0")) for one in rects if one.get("class") != "never")
    scale = (384.0 - 100.0) / found.rank.capacity_bytes
    assert total == pytest.approx(scale * sum(stage.peak for stage in found.stages), rel=0.01)


def test_what_does_not_fit_is_drawn_and_says_what_is_short(image_record: CalibrationRecord) -> None:
    found = fastest(with_device_memory(image_record, GIB))
    said = words(request_page(found))
    assert "no placement fits" in said and "does not fit" in said and "are missing" in said


def test_names_in_a_record_cannot_break_the_page(image_record: CalibrationRecord) -> None:
    evil = "<script>\"&'</script>"
    model = image_record.model.model_copy(update={"name": evil})
    found = fastest(image_record.model_copy(update={"model": model}))
    assert "<script" not in request_page(found) and evil in words(request_page(found))


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(1, 2, "50 %"), (0.0005, 1, "< 0.1 %"), (0.015, 1, "1.5 %"), (0, 1, "0 %"), (1, 0, "0 %")],
)
def test_percent(part: float, whole: float, said: str) -> None:
    assert percent(part, whole) == said


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["report", *arguments])


HARD_1 = str(RECORDS / "hard-1-keep-or-die-31gib.json")


def test_the_command_prints_tables_and_writes_pages(tmp_path: Path) -> None:
    shown = run(HARD_1)
    assert shown.exit_code == 0, shown.output
    assert "where the seconds go" in shown.output and "A request takes " in shown.output
    assert (
        "not Layerwise: 60 of 60 transformer_blocks resident for good: nothing is"
        in run(HARD_1, "--output", "html").output
    )
    for form in ("html", "svg", "json"):
        file = tmp_path / f"page.{form}"
        assert run(HARD_1, "-o", str(file)).exit_code == 0
        assert file.read_text(encoding="utf-8") == run(HARD_1, "--output", form).output


def test_a_placement_that_is_given_is_shown(tmp_path: Path) -> None:
    record = CalibrationRecord.read(Path(HARD_1))
    file = tmp_path / "placement.json"
    file.write_text(json.dumps(seed_placement(record.components, 1).to_json()))
    assert (
        "Layerwise: 0 of 60 transformer_blocks resident"
        in run(HARD_1, "--placement", str(file), "--output", "html").output
    )
    value = json.loads(run(HARD_1, "--placement", str(file), "--output", "json").output)
    assert value["seconds"] == pytest.approx(cost(record, Placement.read(file)).seconds)
    assert run(HARD_1, "--placement", str(file), "--device-memory", "1Gi").exit_code == 3


def test_an_answer_does_not_replace_what_it_was_made_from(tmp_path: Path) -> None:
    record, placement = tmp_path / "r.json", tmp_path / "p.json"
    record.write_text(Path(HARD_1).read_text())
    measured = CalibrationRecord.read(record)
    placement.write_text(json.dumps(seed_placement(measured.components, 1).to_json()))
    before = record.read_text(), placement.read_text()
    for file in (record, placement):
        done = run(str(record), "--placement", str(placement), "-o", str(file))
        assert done.exit_code == 2 and "a file that this command reads; give another -o" in done.output
    assert (record.read_text(), placement.read_text()) == before


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--device-memory", "1Gi"), 3, "no placement fits"),
        (("--workload", "nothing"), 2, "--workload: nothing is not in the record, which has "),
        (("-o", "page.txt"), 2, "give -o a name that ends in .json, .svg or .html"),
        (("--device-memory", "lots"), 2, "--device-memory"),
    ],
)
def test_what_the_command_refuses(arguments: tuple[str, ...], code: int, says: str) -> None:
    done = run(HARD_1, *arguments)
    assert done.exit_code == code and says in done.output.replace("\n", " "), done.output
