"""Every fault of STOWPLAN_FAULTS gives the right end: the last good placement, proven again, and the reason told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from starts import Start, begin_again, return_to_seed, start_again
from stowplan_agent.lifecycle import RollbackFailed
from stowplan_agent.lifecycle.facts import summary
from stowplan_api.placement import ComponentPlacement

MOVES = 3
"""One a component of the tiny Wan pipeline: the seed streams everything, the plan keeps a part of each."""

FAULTS = [
    *((f"apply.{number}", "ApplyFailed", f"move {number} of {MOVES} (component ") for number in range(1, MOVES + 1)),
    ("validate.output", "OutputDiffers", "the output differs from the reference: 000000000000 and not "),
    ("validate.seconds", "TooSlow", "a request takes "),
    ("validate.memory", "PeakOverBudget", "the allocated peak of 40 MiB is "),
    ("validate.run", "OutOfMemory", "the validation request ran out of memory: fault validate.run was injected"),
]


@pytest.fixture(autouse=True)
def nothing_left_behind(measured: Start) -> Iterator[None]:
    """Whatever a test did, the next start begins where the first one did."""
    yield
    return_to_seed(measured)
    measured.startup.prepared.session.check()
    assert measured.weights_on_device() == 0


@pytest.mark.parametrize(("fault", "reason", "message"), FAULTS)
def test_a_fault_rolls_back_to_the_proven_seed_placement(
    measured: Start, fault: str, reason: str, message: str
) -> None:
    planned = measured.condition("Applied").message
    started = start_again(measured, faults=fault)
    prepared = started.startup.prepared

    assert started.phase == started.status.phase == "RolledBack"
    assert started.phases[-1] == "RollBack"
    assert prepared.session.placement() == prepared.seed
    assert started.weights_on_device() == 0
    prepared.session.check()

    (rollback,) = started.status.rollbacks
    assert rollback.reason == reason
    assert rollback.message.startswith(message)
    assert rollback.from_ == planned
    assert rollback.to == summary(prepared.seed)
    assert rollback.measured.startswith("peak ") == (fault.startswith("validate.") and fault != "validate.run")

    conditions = {condition.type: (condition.status, condition.reason) for condition in started.status.conditions}
    assert conditions == {
        "Calibrated": ("True", "Measured"),
        "Applied": ("False", reason),
        "Validated": ("True", "ProvenAfterRollback"),
        "RolledBack": ("True", reason),
        "Ready": ("False", "Starting"),
    }
    assert started.condition("RolledBack").message == rollback.message
    assert started.metric("rollbacks_total", reason=reason) == 1
    assert started.metric("placement_validated") == 1
    assert (
        started.metric("placement_info", plan="seed", device="Emulated 40 MiB", uuid="", product="Emulated 40 MiB") == 1
    )
    assert started.status.validation is not None
    assert started.status.validation.bit_equal
    assert started.status.plan is not None
    assert started.status.plan.kept == f"the seed placement is in force: rolled back ({reason})"
    assert all(part.device_bytes == 0 for part in started.status.components)


def test_a_fault_that_never_comes_changes_nothing(measured: Start) -> None:
    started = start_again(measured, faults=f"apply.{MOVES + 1}")
    assert started.phase == "Ready"
    assert started.status.rollbacks == ()
    assert started.status.plan is not None and started.status.plan.kept is None


@pytest.mark.parametrize("fault", ["apply.2", "validate.output"])
def test_a_rollback_that_fails_ends_the_process_and_says_what_it_was_for(measured: Start, fault: str) -> None:
    _, startup, progress = begin_again(measured, faults=f"{fault},rollback")
    with pytest.raises(
        RollbackFailed, match=r"rolling back failed: fault rollback was injected .* undo this: "
    ) as caught:
        startup.run()
    assert progress.status.phase == "Failed"
    assert not progress.door.open
    for condition in progress.status.conditions:
        if condition.type in ("Validated", "Ready"):
            assert (condition.status, condition.message) == ("False", str(caught.value))


def test_a_seed_that_has_become_slower_is_served_all_the_same(measured: Start) -> None:
    """The move fails, and the seed's own proof takes ten times the reference's seconds: there is nothing faster."""
    started = start_again(measured, faults="apply.2,validate.seconds")
    assert started.phase == "RolledBack"
    assert started.status.validation is not None
    assert started.status.validation.milliseconds > 5 * started.status.validation.reference_milliseconds


def outputs(measured: Start, monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    """What the requests to come will give: frames of one value each."""
    frames = iter(values)
    pipeline = measured.startup.prepared.session.pipeline
    monkeypatch.setattr(pipeline, "run", lambda *_, **__: np.full((1, 8, 8, 3), next(frames), np.float32))


def test_a_seed_that_does_not_validate_either_keeps_the_door_shut(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed's runs agree with each other and not with the first one: that is no spread, something is broken."""
    _, startup, progress = begin_again(measured)
    session = startup.prepared.session
    outputs(measured, monkeypatch, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2)
    assert startup.run() == progress.status.phase == "Failed"
    assert str(startup.error).startswith("the seed placement does not validate either: the output differs")
    assert "the planned one failed so: the output differs" in str(startup.error)
    assert session.placement() == startup.prepared.seed
    assert [rollback.reason for rollback in progress.status.rollbacks] == ["OutputDiffers"]
    assert not progress.door.open


def test_a_reference_that_differs_from_itself_is_its_own_tolerance(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, startup, progress = begin_again(measured)
    planned = progress.status.resident
    # The plan's, two more of the reference, and the plan's own again, once it is gone back to.
    outputs(measured, monkeypatch, 0.50, 0.48, 0.51, 0.46)
    assert startup.run() == "Ready"
    assert startup.prepared.session.placement() != startup.prepared.seed
    (validated,) = (one for one in progress.status.conditions if one.type == "Validated")
    assert "0.02 from the reference, of which two runs are 0.03 apart" in validated.message
    assert progress.status.validation is not None and not progress.status.validation.bit_equal
    assert progress.status.rollbacks == ()
    assert planned != progress.status.resident


def test_a_plan_that_was_left_to_run_the_reference_is_proven_again_and_not_taken_on_trust(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it gave before it was left is within the spread; a weight that came back wrong is what this would be."""
    _, startup, progress = begin_again(measured)
    outputs(measured, monkeypatch, 0.50, 0.48, 0.51, 0.60, 0.49)  # the last one is the seed's proof
    assert startup.run() == "RolledBack"
    (rollback,) = progress.status.rollbacks
    assert rollback.reason == "OutputDiffers"
    assert rollback.message.startswith("the output is none of this model's since the placement was left")
    assert startup.prepared.session.placement() == startup.prepared.seed


def test_what_differs_by_more_than_the_reference_from_itself_is_rolled_back(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, startup, progress = begin_again(measured)
    outputs(measured, monkeypatch, 0.60, 0.48, 0.51, 0.55)  # the last one is the seed's proof, and widens the spread
    assert startup.run() == "RolledBack"
    (rollback,) = progress.status.rollbacks
    assert rollback.reason == "OutputDiffers"
    assert rollback.message.endswith("by 0.09, and two runs of the reference itself by 0.03")
    assert startup.prepared.session.placement() == startup.prepared.seed


def test_a_seed_further_from_its_own_runs_than_they_can_be_keeps_the_door_shut(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that does not repeat itself is no excuse for whatever comes out."""
    _, startup, progress = begin_again(measured)
    outputs(measured, monkeypatch, 0.60, 0.48, 0.51, 0.60)
    assert startup.run() == progress.status.phase == "Failed"
    assert str(startup.error).startswith("the seed placement does not validate either: the output differs")
    assert not progress.door.open


def test_out_of_memory_while_applying_gives_every_byte_back(measured: Start) -> None:
    """CASES T3: the device has no room for a move, and then for the retry it has."""
    return_to_seed(measured)
    session = measured.startup.prepared.session
    accelerator = session.accelerator
    ballast = accelerator.allocate(30 << 20)
    try:
        before = accelerator.counters().allocated
        with pytest.raises(torch.OutOfMemoryError):
            session.engine.place(ComponentPlacement(name="transformer", mode="Resident"))
        assert accelerator.counters().allocated == before
    finally:
        accelerator.free(ballast)
    session.engine.place(ComponentPlacement(name="transformer", mode="Resident"))
    session.check()
