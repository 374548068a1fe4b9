"""A stored start that does not hold here, or cannot be proven in time: back to the seed placement, and in full."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pipelines.stored_starts import COLD, WARM, Earlier, Starts, change
from stowplan_agent.lifecycle import startup as watching
from stowplan_agent.lifecycle.phases import Outcome
from stowplan_agent.lifecycle.preparation import Preparation
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.lifecycle.warm_start import Store, StoredStart
from stowplan_agent.lifecycle.watchdog import Watchdog
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.residency_placement import Phase


def other_layers(start: StoredStart) -> StoredStart:
    first, *rest = start.record.components
    changed = first.model_copy(update={"loose_bytes": first.loose_bytes - 256})
    return start.model_copy(update={"record": start.record.model_copy(update={"components": (changed, *rest)})})


def other_bounded(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"bounded_digest": "0" * 64})


def other_output(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"step": start.step.model_copy(update={"digest": "0" * 64})})


def smaller_peak(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"step": start.step.model_copy(update={"peak_bytes": start.step.peak_bytes // 2})})


def more_pinned(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"pinned_bytes": 1 << 30})


GIVEN_UP: list[tuple[Callable[[StoredStart], StoredStart], Phase, str]] = [
    (other_layers, "Load", "layers, and had "),
    (more_pinned, "Load", "the driver locked "),
    (other_bounded, "Warm", "the bounded request gave "),
    (other_output, "Revalidate", "the output differs from the reference"),
    (smaller_peak, "Revalidate", "one step peaks at "),
]


@pytest.mark.parametrize(("alter", "phase", "words"), GIVEN_UP, ids=[case[0].__name__ for case in GIVEN_UP])
def test_whatever_differs_leads_back_to_the_seed_placement(
    until: Starts,
    records: Path,
    alter: Callable[[StoredStart], StoredStart],
    phase: Phase,
    words: str,
) -> None:
    change(records, alter)
    started = until(phase)
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("Unknown", "NotReused")
    assert calibrated.message.startswith("the stored start does not hold here: ")
    assert words in calibrated.message
    preparation = started.startup.preparation
    assert preparation.session.placement() == preparation.loaded.seed
    assert preparation.session.accelerator.counters().weights == 0
    preparation.session.check()
    # A proof that failed would fail again; what does not suit this pod may suit another.
    assert bool(list(records.iterdir())) == (phase != "Revalidate")


@pytest.mark.parametrize(("phase", "after"), [("Warm", "Load"), ("Revalidate", "Warm")])
def test_a_request_that_fails_in_any_way_leads_back_as_well(
    until: Starts, phase: Phase, after: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for want of memory alone: a stored placement is no reason for a start to end."""
    started = until(after)
    warm_start, preparation = started.startup.warm_start, started.startup.preparation
    run, failing = preparation.session.pipeline.run, [RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")]
    monkeypatch.setattr(preparation.session.pipeline, "run", lambda *a, **k: throw(failing) or run(*a, **k))
    outcome = warm_start.warm() if phase == "Warm" else warm_start.revalidate()
    assert outcome is Outcome.STALE
    assert "RuntimeError: CUDNN_STATUS_EXECUTION_FAILED" in started.condition("Calibrated").message
    assert warm_start.stored is None
    assert preparation.session.placement() == preparation.loaded.seed


def throw(once: list[RuntimeError]) -> None:
    if once:
        raise once.pop()


def test_after_a_failed_proof_the_whole_sequence_runs_and_leaves_a_better_file(
    until: Starts, records: Path, earlier: Earlier
) -> None:
    change(records, other_output)
    started = until()
    assert (started.phase, started.phases) == ("Ready", [*WARM, *COLD[3:]])
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("True", "Measured")
    assert "; the stored start does not hold here: the output differs from the reference" in calibrated.message
    assert started.condition("Applied").reason == "PlanApplied"
    assert started.startup.prepared.session.placement().canonical() == earlier.placement
    assert started.output() == earlier.output
    found = Store(records).find(started.startup.warm_start.facts)
    assert isinstance(found, StoredStart)
    assert found.step.digest == StoredStart.parse(earlier.text, "file").step.digest


@pytest.mark.parametrize("fault", ["validate.run", "validate.output", "validate.memory"])
def test_faults_of_a_validation_are_those_of_a_revalidation(until: Starts, fault: str) -> None:
    started = until("Revalidate", faults=fault)
    assert started.condition("Calibrated").reason == "NotReused"
    assert started.status.rollbacks == ()


def test_a_revalidation_past_its_deadline_is_given_up(until: Starts) -> None:
    started = until("Revalidate", environment={"STOWPLAN_PHASE_DEADLINES": "Revalidate=0.000001"})
    assert "phase Revalidate has not ended after" in started.condition("Calibrated").message
    assert started.condition("Calibrated").reason == "NotReused"


def test_the_switch_thrown_while_a_stored_start_is_tried(until: Starts) -> None:
    switch = KillSwitch()
    startup = until("Load", switch=switch).startup
    switch.throw()
    assert startup.warm_start.warm() is Outcome.STALE
    assert startup.preparation.session.placement() == startup.preparation.loaded.seed


def test_a_warm_up_past_its_deadline_is_given_up_and_the_whole_sequence_runs(
    until: Starts, earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored placement that hangs is no reason for a start to end: what comes in its place has its own time."""
    timers: list[Callable[[], None]] = []

    class ByHand:
        """A timer that fires when it is told to."""

        daemon = False

        def __init__(self, seconds: float, call: Callable[[], None]) -> None:
            timers.append(call)

        def start(self) -> None:
            return None

        cancel = start

    monkeypatch.setattr(watching, "Watchdog", partial(Watchdog, timer=ByHand))
    warm_as_loaded = Preparation.warm_as_loaded

    def late(preparation: Preparation) -> tuple[Shape, str]:
        timers[-1]()
        return warm_as_loaded(preparation)

    monkeypatch.setattr(Preparation, "warm_as_loaded", late)
    started = until()
    assert (started.phase, started.phases) == ("Ready", COLD), started.error
    message = started.condition("Calibrated").message
    assert "; the stored start does not hold here: phase Warm has not ended after " in message
    assert started.condition("Validated").reason == "Proven"
    assert started.output() == earlier.output
