"""The kill switch and the deadlines at every phase of a start: what was begun is undone, and the gate knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from starts import Start, begin, begin_again, settings_of, start
from stowplan_agent.lifecycle.facts import summary
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.pipeline.request import Stopped
from stowplan_api.placement import ComponentPlacement
from stowplan_api.residency_placement import ResidencyPlacementStatus


@pytest.fixture(scope="module")
def measured(tiny_wan: Path) -> Iterator[Start]:
    started = start(settings_of(tiny_wan, "40Mi"))
    assert started.phase == "Ready"
    yield started
    started.startup.close()


def when(begun: tuple[Any, Any], phase: str, act: Callable[[], None]) -> None:
    """Act as soon as the phase has begun, before it does anything."""
    reporter = begun[1]._reporter
    report = reporter.report

    def heard(status: ResidencyPlacementStatus) -> None:
        first = status.phase == phase and reporter.status.phase != phase
        report(status)
        if first:
            act()

    reporter.report = heard


def again(measured: Start, phase: str, act: Callable[[KillSwitch], None]) -> Start:
    """The later phases of a start once more, with something that happens when ``phase`` begins."""
    switch = KillSwitch()
    settings, startup, progress = begin_again(measured, switch=switch)
    when((startup, progress), phase, lambda: act(switch))
    return Start(settings, startup, progress, startup.run())


SERVES_SEED = ("Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply")


@pytest.mark.parametrize("phase", SERVES_SEED)
def test_thrown_before_anything_moved_nothing_moves(measured: Start, phase: str) -> None:
    started = again(measured, phase, lambda switch: switch.throw())
    assert started.phase == "Ready"
    assert started.startup.prepared.session.placement() == started.startup.prepared.seed
    assert started.condition("Applied").reason == "ResidencyDisabled"
    assert started.status.rollbacks == ()
    assert started.weights_on_device() == 0


@pytest.mark.parametrize("move", [1, 2, 3])
def test_thrown_in_the_middle_of_apply_every_move_is_undone(
    measured: Start, move: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = KillSwitch()
    settings, startup, progress = begin_again(measured, switch=switch)
    engine = startup.prepared.session.engine
    place, moved = engine.place, []

    def counted(entry: ComponentPlacement) -> None:
        place(entry)
        moved.append(entry.name)
        if len(moved) == move:
            switch.throw()

    monkeypatch.setattr(engine, "place", counted)
    started = Start(settings, startup, progress, startup.run())
    assert started.phase == "RolledBack"
    assert len(moved) >= 2 * move  # there and back
    assert started.startup.prepared.session.placement() == started.startup.prepared.seed
    assert started.weights_on_device() == 0
    started.startup.prepared.session.check()
    (rollback,) = started.status.rollbacks
    assert rollback.reason == "ResidencyDisabled"
    assert "STOWPLAN_DISABLE_AUTO_RESIDENCY" in rollback.message
    assert rollback.to == summary(started.startup.prepared.seed)
    assert started.condition("Validated").reason == "ProvenAfterRollback"


def test_thrown_while_the_plan_is_validated_it_is_taken_back(measured: Start) -> None:
    started = again(measured, "Validate", lambda switch: switch.throw())
    assert started.phase == "RolledBack"
    assert [rollback.reason for rollback in started.status.rollbacks] == ["ResidencyDisabled"]
    assert started.weights_on_device() == 0


def test_thrown_during_a_rollback_it_changes_nothing(measured: Start) -> None:
    switch = KillSwitch()
    settings, startup, progress = begin_again(measured, faults="validate.output", switch=switch)
    when((startup, progress), "RollBack", switch.throw)
    started = Start(settings, startup, progress, startup.run())
    assert started.phase == "RolledBack"
    assert [rollback.reason for rollback in started.status.rollbacks] == ["OutputDiffers"]


def test_a_phase_past_its_deadline_ends_the_start_with_one_sentence(tiny_wan: Path) -> None:
    settings = settings_of(tiny_wan, "40Mi", environment={"STOWPLAN_PHASE_DEADLINES": "Warm=0.000001"})
    started = start(settings)
    started.startup.close()
    assert started.phase == "Failed"
    assert started.phases == ["Inventory", "Load", "Warm"]
    assert not started.progress.door.open
    assert started.error.startswith("phase Warm has not ended after 1e-06 s, its deadline; ")
    assert "STOWPLAN_PHASE_DEADLINES=Warm=SECONDS" in started.error
    assert started.progress.door.message == started.error
    for condition in ("Calibrated", "Validated", "Ready"):
        assert started.condition(condition).status == "False"
    assert started.condition("Calibrated").reason == "DeadlineExceeded"
    assert started.metric("phase_deadline_seconds", phase="Warm") == 0.000001


def test_a_checkpoint_that_comes_late_is_told_of_and_served(tiny_wan: Path, caplog: pytest.LogCaptureFixture) -> None:
    deadlines = {"STOWPLAN_PHASE_DEADLINES": "Inventory=0.000001,Load=0.000001"}
    started = start(settings_of(tiny_wan, "40Mi", environment=deadlines))
    started.startup.close()
    for phase in ("Inventory", "Load"):
        assert f"phase {phase} has not ended after 1e-06 s, its deadline" in caplog.text
    assert started.phase == "Ready"
    assert started.condition("Validated").status == "True"


@pytest.mark.parametrize("phase", ["Apply", "Validate"])
def test_an_adjustment_past_its_deadline_is_taken_back(measured: Start, phase: str) -> None:
    environment = {"STOWPLAN_PHASE_DEADLINES": f"{phase}=0.000001"}
    settings, startup, progress = begin_again(measured, environment=environment)
    started = Start(settings, startup, progress, startup.run())
    assert started.phase == "RolledBack"
    (rollback,) = started.status.rollbacks
    assert rollback.reason == "DeadlineExceeded"
    assert rollback.message.startswith(f"phase {phase} has not ended after ")
    assert started.weights_on_device() == 0
    validated = started.condition("Validated")
    assert (validated.status, validated.reason) == ("True", "ProvenAfterRollback")


def test_a_rollback_past_its_deadline_keeps_the_gate_closed(measured: Start) -> None:
    environment = {"STOWPLAN_PHASE_DEADLINES": "RollBack=0.000001"}
    settings, startup, progress = begin_again(measured, faults="validate.output", environment=environment)
    started = Start(settings, startup, progress, startup.run())
    assert started.phase == "Failed"
    assert not started.progress.door.open
    assert "phase RollBack has not ended after " in started.error


def test_a_phase_that_hangs_is_told_of_before_it_ends(tiny_wan: Path) -> None:
    """The status says so while the phase still runs: nobody need wait for what may never end."""
    settings = settings_of(tiny_wan, "40Mi", environment={"STOWPLAN_PHASE_DEADLINES": "Inventory=0.000001"})
    startup, progress = begin(settings)
    seen: list[tuple[str, str]] = []
    take = startup.preparation.take_inventory

    def hanging() -> None:
        take()
        deadline = 200
        while not progress.door.message.startswith("phase Inventory has not ended") and deadline:
            deadline -= 1
            startup._watchdog._lock.acquire()  # the timer's thread speaks while it holds this
            startup._watchdog._lock.release()
        validated = next(one for one in progress.status.conditions if one.type == "Validated")
        seen.append((validated.status, validated.reason))

    startup.preparation.take_inventory = hanging  # type: ignore[method-assign]
    assert startup.run() == "Ready"  # it came in the end
    startup.close()
    assert seen == [("False", "DeadlineExceeded")]


def test_asked_to_stop_in_the_middle_of_apply_the_moves_are_undone(measured: Start) -> None:
    moved: list[str] = []
    _, startup, _ = begin_again(measured, stop=lambda: len(moved) >= 2)
    engine = startup.prepared.session.engine
    place = engine.place

    def counted(entry: ComponentPlacement) -> None:
        place(entry)
        moved.append(entry.name)

    engine.place = counted  # type: ignore[method-assign]
    try:
        with pytest.raises(Stopped):
            startup.run()
    finally:
        del engine.place
    assert startup.prepared.session.placement() == startup.prepared.seed
    startup.prepared.session.check()


def test_thrown_while_the_plan_serves_it_is_taken_back_between_two_requests(measured: Start) -> None:
    started = again(measured, "Solve", lambda _: None)
    assert started.phase == "Ready"
    assert started.startup.serves_a_plan
    before = started.output()
    assert started.startup.recall() == "RolledBack"
    assert not started.startup.serves_a_plan
    assert started.startup.prepared.session.placement() == started.startup.prepared.seed
    assert started.weights_on_device() == 0
    started.startup.prepared.session.check()
    assert started.output() == before
    assert [rollback.reason for rollback in started.status.rollbacks] == ["ResidencyDisabled"]
    conditions = {condition.type: (condition.status, condition.reason) for condition in started.status.conditions}
    assert conditions["Validated"] == ("True", "ProvenAfterRollback")
    assert conditions["Applied"] == ("False", "ResidencyDisabled")
