"""The agent's account of its boot: phases timed, conditions with hygiene, nothing said twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stowplan_agent.cluster.boot import first_status, new_agent
from stowplan_agent.lifecycle import Progress
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_api.conditions import find
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.residency_placement import (
    Limits,
    PodReference,
    ResidencyPlacementSpec,
    ResidencyPlacementStatus,
    Rollback,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that goes on when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Kept:
    """A reporter that keeps every status it is given."""

    def __init__(self, status: ResidencyPlacementStatus) -> None:
        self.reported = [status]

    def read_spec(self, timeout: float | None = None) -> ResidencyPlacementSpec:
        return ResidencyPlacementSpec(
            deployment="wan", pod=PodReference(name="wan-1", uid="u"), generation=7, limits=Limits(memory_bytes=1)
        )

    @property
    def status(self) -> ResidencyPlacementStatus:
        return self.reported[-1]

    def report(self, status: ResidencyPlacementStatus) -> None:
        self.reported.append(status)

    def flush(self, timeout: float) -> bool:
        return True

    def close(self, timeout: float = 5.0) -> None:
        return None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept() -> Kept:
    return Kept(first_status(new_agent(START, "1"), generation=7, former=None, now=START))


@pytest.fixture
def progress(clock: Clock, kept: Kept) -> Progress:
    return Progress(kept, Door(), AgentMetrics(), now=clock.now, monotonic=clock.monotonic)


def test_phases_are_timed_and_named_at_the_door(progress: Progress, clock: Clock, kept: Kept) -> None:
    progress.begin("Inventory")
    assert (progress.door.phase, progress.door.open) == ("Inventory", False)
    assert "Inventory" in progress.door.message
    assert kept.status.phases[-1].milliseconds is None
    clock.seconds = 1.5
    progress.end("Inventory")
    progress.begin("Load")
    clock.seconds = 4.0
    progress.end("Load")
    assert [(one.name, one.started_at, one.milliseconds) for one in kept.status.phases] == [
        ("Inventory", "2026-01-01T00:00:00Z", 1500),
        ("Load", "2026-01-01T00:00:01Z", 2500),
    ]
    assert progress.metrics.registry.get_sample_value("stowplan_phase_duration_seconds", {"phase": "Load"}) == 2.5


def test_every_report_carries_the_generation_and_the_boot(progress: Progress, kept: Kept) -> None:
    progress.begin("Inventory")
    progress.facts(resident="3/8")
    assert {status.observed_generation for status in kept.reported} == {7}
    assert len({status.agent for status in kept.reported}) == 1
    assert all(condition.observed_generation == 7 for condition in kept.status.conditions)


def test_a_condition_moves_its_time_only_when_it_flips(progress: Progress, clock: Clock, kept: Kept) -> None:
    def calibrated() -> tuple[str, str, str]:
        found = find(kept.status.conditions, "Calibrated")
        assert found is not None
        return found.status, found.message, found.last_transition_time

    clock.seconds = 10
    progress.condition(PlacementCondition.CALIBRATED, "True", PlacementReason.MEASURED, "one")
    assert calibrated() == ("True", "one", "2026-01-01T00:00:10Z")
    clock.seconds = 20
    progress.condition(PlacementCondition.CALIBRATED, "True", PlacementReason.MEASURED, "two")
    assert calibrated() == ("True", "two", "2026-01-01T00:00:10Z")
    clock.seconds = 30
    progress.condition(PlacementCondition.CALIBRATED, "False", PlacementReason.FAILED, "three")
    assert calibrated() == ("False", "three", "2026-01-01T00:00:30Z")


def test_what_is_already_said_is_not_said_again(progress: Progress, kept: Kept) -> None:
    progress.condition(PlacementCondition.CALIBRATED, "True", PlacementReason.MEASURED, "same")
    progress.facts(resident="3/8")
    before = len(kept.reported)
    progress.condition(PlacementCondition.CALIBRATED, "True", PlacementReason.MEASURED, "same")
    progress.facts(resident="3/8")
    assert len(kept.reported) == before


def test_ready_and_then_open(progress: Progress, kept: Kept) -> None:
    progress.finish("Ready", "bit-equal")
    assert not progress.door.open
    conditions = {one.type: (one.status, one.reason) for one in kept.status.conditions}
    assert conditions["Validated"] == ("True", "Proven")
    assert conditions["RolledBack"] == ("False", "NoRollback")
    assert conditions["Ready"] == ("False", "Starting")
    progress.open_door()
    assert progress.door.open
    ready = find(kept.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "Serving")


def test_failed_keeps_the_door_shut_with_its_reason(progress: Progress, kept: Kept) -> None:
    progress.finish("Failed", "no placement fits")
    assert (progress.door.open, progress.door.message) == (False, "no placement fits")
    for type_ in ("Validated", "Ready"):
        found = find(kept.status.conditions, type_)
        assert found is not None
        assert (found.status, found.reason, found.message) == ("False", "Failed", "no placement fits")
    assert progress.metrics.registry.get_sample_value("stowplan_placement_validated") == 0


def test_the_last_ten_rollbacks_are_kept_and_long_texts_are_cut(progress: Progress, kept: Kept) -> None:
    for number in range(12):
        progress.rolled_back(PlacementReason.TOO_SLOW, f"number {number} " + "x" * 2000, "planned", "seed", "peak 1")
    rollbacks: tuple[Rollback, ...] = kept.status.rollbacks
    assert [one.message.split()[1] for one in rollbacks] == [str(number) for number in range(2, 12)]
    assert all(len(one.message.encode()) <= 1024 for one in rollbacks)
    assert (rollbacks[0].from_, rollbacks[0].to) == ("planned", "seed")
    found = find(kept.status.conditions, "RolledBack")
    assert found is not None
    assert (found.status, found.reason) == ("True", "TooSlow")
    assert ResidencyPlacementStatus.model_validate(kept.status.to_json(exclude_none=True)) == kept.status
