"""Several declared shapes: the heaviest is proven by one step as well, now and when a later start reuses the proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from starts import Start, begin, settings_of, start, start_again
from stowplan_agent.lifecycle.warm_start import StoredStart
from stowplan_api.diffusion_deployment import Shape

SHAPES = ["small=32x32x1@2", "wide=64x64x1@2"]
MIB = 1 << 20


@dataclass
class Cold:
    """A start of two shapes, the file that it left, and the requests that its proof ran."""

    start: Start
    file: Path


@pytest.fixture(scope="module")
def cold(tiny_wan: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    records = tmp_path_factory.mktemp("records")
    settings = settings_of(tiny_wan, "40Mi", shapes=SHAPES, environment={"STOWPLAN_RECORD_DIR": str(records)})
    started = start(settings)
    (file,) = records.iterdir()
    started.settings = replace(settings, record_dir=None)  # what starts from here again finds no file
    yield Cold(started, file)
    started.startup.close()


class Requests:
    """Hears the requests of a session: shape and steps. Those of a shape may fail in their own way."""

    def __init__(self, started: Start, monkeypatch: pytest.MonkeyPatch, failing: str = "", more_bytes: int = 0) -> None:
        self.ran: list[tuple[str, int]] = []
        session = started.startup.prepared.session
        seed, output = started.startup.prepared.seed, session.output

        def heard(shape: Shape, timeline: Any) -> Any:
            self.ran.append((shape.name, shape.steps))
            fails = shape.name == failing and session.placement() != seed
            if fails and not more_bytes:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
            measured, frames = output(shape, timeline)
            return replace(measured, peak_bytes=measured.peak_bytes + (more_bytes if fails else 0)), frames

        monkeypatch.setattr(session, "output", heard)


def test_the_heaviest_shape_is_proven_by_memory_and_told(cold: Cold) -> None:
    started = cold.start
    assert started.phase == "Ready", started.error
    proof = started.status.validation
    assert proof is not None and proof.heaviest is not None
    assert proof.heaviest.shape == "wide"
    assert proof.heaviest.peak_bytes <= proof.peak_bytes == started.status.ranks[0].peak_bytes
    # The emulated card computes what the record says, so the prediction is exact.
    assert proof.heaviest.peak_bytes == proof.heaviest.predicted_peak_bytes
    assert "; wide, the shape that needs most, peaks at " in started.condition("Validated").message


def test_one_step_of_it_comes_before_the_request_that_is_timed(cold: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(cold.start, monkeypatch)
    assert start_again(cold.start).phase == "Ready"
    assert requests.ran == [("wide", 1), ("small", 2)]


@pytest.mark.parametrize(
    ("more_bytes", "reason", "words"),
    [
        (0, "OutOfMemory", "one step of shape wide ran out of memory: "),
        (40 * MIB, "PeakOverBudget", "shape wide (64x64, 1 steps): the allocated peak of "),
    ],
)
def test_a_plan_that_has_no_room_for_it_is_rolled_back_though_the_default_shape_fits(
    cold: Cold, monkeypatch: pytest.MonkeyPatch, more_bytes: int, reason: str, words: str
) -> None:
    requests = Requests(cold.start, monkeypatch, failing="wide", more_bytes=more_bytes)
    started = start_again(cold.start)
    assert started.phase == "RolledBack"
    (rollback,) = started.status.rollbacks
    assert rollback.reason == reason
    assert rollback.message.startswith(words)
    assert requests.ran[-2:] == [("wide", 1), ("small", 2)], "the seed placement is proven for both"


def test_it_is_kept_and_is_the_one_step_that_the_next_start_runs(cold: Cold, tiny_wan: Path) -> None:
    stored = StoredStart.parse(cold.file.read_text(), "file")
    assert (stored.step.shape, stored.step.steps) == ("wide", 1)
    assert (stored.reference.shape, stored.reference.steps) == ("small", 2)
    environment = {"STOWPLAN_RECORD_DIR": str(cold.file.parent)}
    warm = start(settings_of(tiny_wan, "40Mi", shapes=SHAPES, environment=environment))
    try:
        assert warm.phases == ["Inventory", "Load", "Warm", "Revalidate"]
        proof = warm.status.validation
        assert proof is not None and proof.heaviest is not None and proof.bit_equal
        assert proof.heaviest.shape == "wide"
        assert proof.heaviest.peak_bytes == proof.peak_bytes == stored.step.peak_bytes
        assert warm.condition("Validated").message.startswith("bit-equal; 64x64, 1 steps in ")
    finally:
        warm.startup.close()


def test_a_file_that_has_not_proven_it_is_not_tried(cold: Cold, tiny_wan: Path, tmp_path: Path) -> None:
    stored = StoredStart.parse(cold.file.read_text(), "file")
    lighter = stored.model_copy(update={"step": stored.step.model_copy(update={"shape": "small"})})
    (tmp_path / cold.file.name).write_text(lighter.text())
    settings = settings_of(tiny_wan, "40Mi", shapes=SHAPES, environment={"STOWPLAN_RECORD_DIR": str(tmp_path)})
    started = Start(settings, *begin(settings), "Pending")
    try:
        started.startup.run(until="Inventory")
        message = started.condition("Calibrated").message
        assert message.endswith("it was proven with 1 steps of shape small, and wide needs most memory")
    finally:
        started.startup.close()
