"""The whole start on three real tiny pipelines and cards of several sizes: what is promised is what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starts import Start, settings_of, start, start_again

MODELS = ("tiny-wan", "tiny-wan-two-experts", "tiny-flux")
SMALL = {"tiny-wan": "40Mi", "tiny-wan-two-experts": "30Mi", "tiny-flux": "24Mi"}
"""Cards on which a part can be kept."""
LARGE = "96Mi"
"""A card on which everything can."""

Run = Callable[[str, str], Start]


@pytest.fixture(scope="module")
def run(write_tiny: Callable[[str], Path]) -> Iterator[Run]:
    """A start of a model on a card; each is run once."""
    done: dict[tuple[str, str], Start] = {}

    def once(model: str, card: str) -> Start:
        if (model, card) not in done:
            done[model, card] = start(settings_of(write_tiny(model), card))
        return done[model, card]

    yield once
    for started in done.values():
        started.startup.close()


CASES = [(model, card) for model in MODELS for card in (SMALL[model], LARGE)] + [("tiny-wan", "30Mi")]


@pytest.mark.parametrize(("model", "card"), CASES)
def test_the_start_ends_ready_and_proven(run: Run, model: str, card: str) -> None:
    started = run(model, card)
    assert (started.phase, started.error) == ("Ready", "None")
    assert started.phases == ["Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply", "Validate"]
    assert started.status.phase == "Ready"
    conditions = {condition.type: (condition.status, condition.reason) for condition in started.status.conditions}
    assert conditions == {
        "Calibrated": ("True", "Measured"),
        "Applied": ("True", "PlanApplied"),
        "Validated": ("True", "Proven"),
        "RolledBack": ("False", "NoRollback"),
        "Ready": ("False", "Starting"),
    }
    assert started.status.validation is not None
    assert started.status.validation.bit_equal
    assert started.status.rollbacks == ()
    assert not started.progress.door.open  # the queue opens first


@pytest.mark.parametrize(("model", "card"), CASES)
def test_the_predicted_peak_is_the_measured_one_to_the_byte(run: Run, model: str, card: str) -> None:
    started = run(model, card)
    status = started.status
    assert status.plan is not None
    assert status.validation is not None
    assert status.plan.predicted_peak_bytes == status.validation.peak_bytes
    (rank,) = status.ranks
    assert rank.peak_bytes == status.validation.peak_bytes
    assert rank.peak_bytes + rank.reserve_bytes <= rank.capacity_bytes
    assert started.metric("predicted_peak_bytes") == started.metric("measured_peak_bytes") == rank.peak_bytes


@pytest.mark.parametrize(("model", "card"), CASES)
def test_the_predicted_seconds_are_the_measured_ones_within_two_percent(run: Run, model: str, card: str) -> None:
    started = run(model, card)
    predicted, measured = started.metric("predicted_seconds"), started.metric("measured_seconds")
    assert predicted == pytest.approx(measured, rel=0.02)
    assert measured is not None
    assert measured < started.startup.prepared.reference.seconds


@pytest.mark.parametrize("model", MODELS)
def test_a_small_card_keeps_a_part_and_a_large_one_everything(run: Run, model: str) -> None:
    small, large = run(model, SMALL[model]), run(model, LARGE)
    assert small.status.resident is not None
    kept, layers = (int(number) for number in small.status.resident.split("/"))
    assert kept < layers
    assert large.status.resident == f"{layers}/{layers}"
    assert {part.mode for part in large.status.components} == {"Resident"}
    assert sum(part.pinned_bytes for part in large.status.components) == 0
    assert small.weights_on_device() < large.weights_on_device()


@pytest.mark.parametrize("model", MODELS)
def test_the_report_equals_the_device(run: Run, model: str) -> None:
    for card in (SMALL[model], LARGE):
        started = run(model, card)
        started.startup.prepared.session.check()
        assert sum(part.device_bytes for part in started.status.components) == started.weights_on_device()
        for part in started.status.components:
            assert started.metric("component_bytes", component=part.name, tier="device") == part.device_bytes


@pytest.mark.parametrize("model", MODELS)
def test_outputs_are_bit_equal_when_resident_planned_and_rolled_back(run: Run, model: str) -> None:
    large, small = run(model, LARGE), run(model, SMALL[model])
    resident, planned = large.output(), small.output()
    assert planned == resident
    digests = {started.startup.prepared.reference.digest for started in (large, small)}
    assert len(digests) == 1
    back = start_again(small, faults="validate.seconds")
    assert back.phase == "RolledBack"
    assert back.output() == resident


def test_every_plan_explains_itself(run: Run) -> None:
    started = run("tiny-wan", SMALL["tiny-wan"])
    assert started.status.plan is not None
    explained = [line.split(":")[0] for line in started.status.plan.explanations]
    assert sorted(explained) == sorted(part.name for part in started.status.components)
