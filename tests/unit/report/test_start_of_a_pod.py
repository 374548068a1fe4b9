"""What a page tells of the pod that a record is of: its proof, its phases, its rollbacks, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_agent.planning import seed_placement
from stowplan_agent.report.frontier import frontier_around
from stowplan_agent.report.request import requests_of
from stowplan_agent.report.request_page import request_page
from stowplan_agent.report.start import (
    off,
    phase_bars,
    proof_rows,
    reasons_of,
    rollback_rows,
    start_sentence,
    state_sentence,
)
from stowplan_agent.report.start_picture import phases_picture
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import ResidencyPlacementStatus

GIB = 1 << 30
RECORD = Path(__file__).parents[1] / "planning" / "records" / "hard-1-keep-or-die-31gib.json"
PHASES = (("Inventory", 500), ("Load", 4_000), ("Probe", 10_000), ("Validate", None))
TITLES = {"Promised against measured", "How the pod started", "Rollbacks", "Which card"}
PLAN = {"id": "p1", "predictedMilliseconds": 14_000, "predictedPeakBytes": 20 * GIB,
        "explanations": ["vae: Resident; nothing is faster",
                         "text_encoder: Offload; device memory: 1 MiB short"]}  # fmt: skip
PROOF = {"milliseconds": 12_000, "referenceMilliseconds": 16_000, "peakBytes": 21 * GIB, "bitEqual": True}
TAKEN_BACK = {"time": "2026-11-30T12:00:00Z", "reason": "TooSlow", "from": "vae Resident", "to": "vae Offload"}


def status(**fields: Any) -> ResidencyPlacementStatus:
    phases = [{"name": name, "startedAt": "2026-11-30T12:00:00Z"} | ({} if taken is None else {"milliseconds": taken})
              for name, taken in PHASES]  # fmt: skip
    return ResidencyPlacementStatus.model_validate({"phase": "Ready", "phases": phases, **fields})


def words(text: str) -> str:
    return " ".join(ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n")).itertext())


def titles(text: str) -> set[str]:
    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    return {"".join(one.itertext()) for one in root.iter("h2")}


def drawn(record: CalibrationRecord, **known: Any) -> str:
    return request_page(requests_of(record, seed_placement(record.components, 1)), **known)


def test_phases_follow_one_another_and_one_that_runs_has_no_length() -> None:
    bars = phase_bars(status())
    assert [(bar.name, bar.begin, bar.seconds) for bar in bars] == [
        ("Inventory", 0.0, 0.5), ("Load", 0.5, 4.0), ("Probe", 4.5, 10.0), ("Validate", 14.5, None),
    ]  # fmt: skip
    assert start_sentence(status()) == "The start took 14.5 s, 10 s of it in Probe."
    assert start_sentence(status(phase="Validate")) == "Now: Validate, 10 s of it in Probe."
    assert start_sentence(ResidencyPlacementStatus()) == ""
    assert "runs" in words(phases_picture(status())) and "nan" not in phases_picture(status())


def test_only_what_is_the_same_on_both_sides_is_compared() -> None:
    peak, request, bits = proof_rows(status(plan=PLAN, validation=PROOF))
    assert peak[1:] == ("20 GiB", "21 GiB", "+5 %")
    assert request[1:] == ("16 s", "12 s", "-25 %")
    assert bits[1:] == ("the same", "the same", "")
    assert [row[0] for row in proof_rows(status(validation=PROOF | {"bitEqual": False}))] == [request[0], bits[0]]
    after = proof_rows(status(phase="RolledBack", plan=PLAN, validation=PROOF))
    assert [row[0] for row in after] == [request[0], bits[0]], "what serves is not what the plan promised"
    assert proof_rows(status(plan=PLAN)) == []
    kept = status(plan=PLAN | {"kept": "the seed placement: the plan is no faster"}, validation=PROOF)
    assert [row[0] for row in proof_rows(kept)] == [request[0], bits[0]] and reasons_of(kept) == {}
    assert state_sentence(kept) == "Ready; in the plan's stead serves: the seed placement: the plan is no faster"


@pytest.mark.parametrize(
    ("promised", "measured", "said"),
    [(100, 100, "none"), (100, 101.2, "+1.2 %"), (100, 75, "-25 %"), (0, 5, ""), (10, 30, "+200 %")],
)
def test_how_far_off(promised: float, measured: float, said: str) -> None:
    assert off(promised, measured) == said


@pytest.mark.parametrize(
    ("phase", "said"),
    [("Ready", "was proven in this boot"), ("RolledBack", "last good placement serves"),
     ("Probe", "Starting, in phase"), ("Failed", "nothing serves")],
)  # fmt: skip
def test_the_state_is_one_sentence(phase: str, said: str) -> None:
    assert said in state_sentence(status(phase=phase))


def test_reasons_are_the_plans_and_rollbacks_are_newest_first() -> None:
    assert reasons_of(status(plan=PLAN)) == {
        "vae": "nothing is faster",
        "text_encoder": "device memory: 1 MiB short",
    }
    later = TAKEN_BACK | {"time": "2026-11-30T13:00:00Z", "message": "5 % slower"}
    rows = rollback_rows(status(rollbacks=[TAKEN_BACK, later]))
    assert [row[0] for row in rows] == ["2026-11-30T13:00:00Z", "2026-11-30T12:00:00Z"]
    assert [row[1] for row in rows] == ["TooSlow: 5 % slower", "TooSlow"]


def test_a_section_without_anything_to_say_is_not_drawn(image_record: CalibrationRecord) -> None:
    assert not titles(drawn(image_record)) & TITLES
    assert titles(drawn(image_record, status=ResidencyPlacementStatus())) & TITLES == set()
    assert titles(drawn(image_record, status=status())) & TITLES == {"How the pod started"}
    around = frontier_around(image_record, 4)
    full = drawn(image_record, status=status(plan=PLAN, validation=PROOF, rollbacks=[TAKEN_BACK]), frontier=around)
    assert titles(full) & TITLES == TITLES
    assert "this card, 31.4 GiB" in words(full) and "device memory: 1 MiB short" in words(full)


def test_every_link_of_the_contents_leads_to_a_heading(image_record: CalibrationRecord) -> None:
    root = ElementTree.fromstring(drawn(image_record, status=status()).removeprefix("<!DOCTYPE html>\n"))
    links = [one.get("href", "") for one in root.iter("a")]
    assert links and set(links) == {"#" + one.get("id", "") for one in root.iter("h2")}


def test_a_record_of_several_shapes_has_no_name_twice(image_record: CalibrationRecord) -> None:
    (first,) = image_record.workloads
    wide = first.model_copy(update={"name": "wide"})
    intervals = tuple(
        interval.model_copy(
            update={"runs": (*interval.runs, *(run.model_copy(update={"workload": "wide"}) for run in interval.runs))}
        )
        for interval in image_record.intervals
    )
    both = image_record.model_copy(update={"workloads": (first, wide), "intervals": intervals})
    root = ElementTree.fromstring(drawn(both).removeprefix("<!DOCTYPE html>\n"))
    ids = [one.get("id", "") for one in root.iter("h2")]
    assert len(set(ids)) == len(ids) and {one.get("href") for one in root.iter("a")} == {f"#{name}" for name in ids}
    assert [one.text for one in root.iter("h3")].count("Stage by stage") == 2


def answer(tmp_path: Path, **changes: Any) -> Path:
    record = CalibrationRecord.read(RECORD)
    made = {
        "phase": "Ready",
        "message": "",
        "status": status(plan=PLAN, validation=PROOF).to_json(exclude_none=True),
        "record": record.to_json(),
        "placement": seed_placement(record.components, 1).to_json(),
    }
    path = tmp_path / "residency.json"
    path.write_text(json.dumps(made | changes))
    return path


def test_the_command_reads_what_a_pod_answers(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(answer(tmp_path)), "-o", str(page)])
    assert done.exit_code == 0, done.output
    said = words(page.read_text(encoding="utf-8"))
    assert "under the placement in force" in said and "Promised against measured" in said and "this card" in said
    elsewhere = CliRunner().invoke(
        app, ["report", str(answer(tmp_path)), "--device-memory", "24Gi", "--output", "html"]
    )
    assert "How the pod started" not in elsewhere.output, "another card is not the one that this pod started on"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"record": None, "phase": "Load"}, "this pod, in phase Load, has no record yet; ask again when it is Ready"),
        ({"record": {"kind": "CalibrationRecord"}}, "record: CalibrationRecord field"),
        ({"status": {"phase": "Asleep"}}, "status: ResidencyPlacementStatus field phase"),
    ],
)
def test_an_answer_that_is_no_use_is_one_sentence(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    done = CliRunner().invoke(app, ["report", str(answer(tmp_path, **changes))])
    assert done.exit_code == 2 and said in done.output.replace("\n", " "), done.output
