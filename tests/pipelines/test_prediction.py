"""One short watched request predicts the declared one elsewhere; and what a start runs to find out is bounded."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.sessions import ALL, link_of, put, record_of, session_of, shape_of
from pipelines.tiny_requests import layerwise, offload, resident
from starts import settings_of, start
from stowplan_agent.calibration import Answers, at_target
from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.session import Session, timeline_of
from stowplan_agent.planning import cost
from stowplan_agent.weights import Timeline
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord

STEPS = 7
PLACEMENTS = {
    "visiting": offload(0.0, prefetch=True),
    "streamed": layerwise(0.0),
    "half, forward": layerwise(0.5, lifetime="Forward", slots=3),
    "resident": resident,
}


def calibrated(session: Session, name: str) -> CalibrationRecord:
    """The record of `STEPS` steps from a request of two."""
    link, answers = link_of(session), Answers()
    put(session, with_pins(session.placement(), session.engine.describe(), 1 << 30))
    _, watched = session.watch(shape_of(name, 2), link, answers)
    rehearsal = session.rehearse(shape_of(name, STEPS), answers)
    observations = at_target(watched, rehearsal.calls, rehearsal.twins)
    assert observations is not None
    return record_of(session, shape_of(name, STEPS), observations, link)


@pytest.mark.parametrize("name", ALL)
def test_seconds_and_peaks_of_other_placements_are_within_five_percent(
    name: str, write_tiny: Callable[[str], Path]
) -> None:
    with session_of(write_tiny(name)) as session:
        record = calibrated(session, name)
        for label, place in PLACEMENTS.items():
            placement = Placement(components=tuple(place(part) for part in record.components))
            predicted = cost(record, placement)
            assert predicted.feasible, predicted.violations
            put(session, placement)
            measured = session.measure(shape_of(name, STEPS), timeline_of(record, shape_of(name, STEPS)))
            peak = max(ranks[0] for ranks in predicted.device_bytes)
            assert measured.seconds == pytest.approx(predicted.seconds, rel=0.05), label
            assert measured.peak_bytes == pytest.approx(peak, rel=0.05), label


def test_a_watched_request_has_the_peak_and_the_output_of_one_that_is_not(tiny_wan: Path) -> None:
    shape = shape_of("tiny-wan", 1)
    with session_of(tiny_wan) as session:
        watched, _ = session.watch(shape, link_of(session))
        measured = session.measure(shape, Timeline())
    # The scheduler keeps a little of the first request.
    assert watched.peak_bytes == pytest.approx(measured.peak_bytes, abs=1 << 14)
    assert watched.digest == measured.digest


def test_a_start_runs_two_bounded_and_two_short_requests_of_full_shape(
    tiny_wan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: Counter[tuple[int, int]] = Counter()
    plain: Any = Session._run

    def counting(self: Session, request: Any, *others: Any) -> Any:
        ran[request.width * request.height * request.frames, request.steps] += 1
        return plain(self, request, *others)

    monkeypatch.setattr(Session, "_run", counting)
    started = start(settings_of(tiny_wan, "48Mi", shapes=["48x32x5@30"]))
    try:
        assert started.phase == "Ready", started.error
        (run,) = next(one.runs for one in started.startup.prepared.record.intervals if one.component == "transformer")
        assert run.passes == 60
    finally:
        started.startup.close()
    # This shape is its own bounded one: two bounded requests, of two steps, and two of full shape.
    assert ran == {(48 * 32 * 5, 2): 2, (48 * 32 * 5, 4): 2}


def test_the_benchmark_on_a_tiny_pipeline_predicts_what_it_measures(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    benchmark, path = importlib.import_module("prediction"), tmp_path / "document.json"
    benchmark.main(["--tiny", "--rows", "pageable", "half, half pinned", "--output", str(path)])
    document = json.loads(path.read_text())
    assert [one["name"] for one in document["rows"]] == ["pageable", "half, half pinned"]
    assert document["worstSeconds"] < 0.05 and document["worstPeak"] < 0.05
    assert document["allBitEqual"]
