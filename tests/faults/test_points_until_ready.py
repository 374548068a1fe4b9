"""A fault at every single operation of apply, validation and commit: the start ends in the last good placement.

Weights bit-equal, the ledger's and the card's bytes what they were before, the hooks the original ones, the cause
named by the point at which it happened, and the next request right: the rollback's own proof is that request.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.drills import Drill, drill_on

SAMPLED = 251
"""One in so many of the tensors that a request makes: each is an allocation of the card, and there are thousands."""
HARMLESS = ("report",)
"""What a start goes on without."""


@pytest.fixture(scope="module")
def drill(checkpoint: Path) -> Iterator[Drill]:
    with drill_on(checkpoint, "40Mi", "32x32x1@1") as drill:
        yield drill


@pytest.fixture(scope="module")
def points(drill: Drill) -> list[str]:
    """All of them, but for a sample of activations."""
    found = drill.points()
    activations = [point for point in found if ":activation." in point]
    return [point for point in found if point not in activations] + activations[::SAMPLED]


@pytest.mark.parametrize("stage", ["apply", "validate", "commit"])
def test_a_fault_at_any_point_is_undone_and_named(drill: Drill, points: list[str], stage: str) -> None:
    """Memory that runs out is looked for a second time; here it is not found then either."""
    of_stage = [point for point in points if point.startswith(f"{stage}:")]
    assert of_stage
    for point in of_stage:
        memory = is_memory(point)
        ending = drill.at(f"{point}+" if memory else point)
        assert ending.died is None, point
        if any(f":{kind}." in point for kind in HARMLESS):
            assert ending.started.phase == "Ready", point
            continue
        status = ending.started.status
        assert ending.started.phase == "RolledBack", (point, ending.said())
        (rollback,) = status.rollbacks
        assert f"fault {point.rpartition('.')[0] if memory else point}" in rollback.message
        assert (rollback.reason == "OutOfMemory") is memory, point
        assert drill.state() == drill.at_seed, point
        assert status.validation is not None and status.validation.bit_equal, point


@pytest.mark.parametrize("stage", ["apply", "validate"])
def test_t3_memory_that_is_short_once_comes_back_and_the_second_try_passes(
    drill: Drill, points: list[str], stage: str
) -> None:
    usual = drill.at("validate:free.1=slow")
    assert usual.started.phase == "Ready"
    there = drill.state()
    for point in points:
        if point.startswith(f"{stage}:") and is_memory(point):
            ending = drill.at(point)
            assert ending.started.phase == "Ready", (point, ending.said())
            assert ending.started.status.rollbacks == ()
            assert drill.state() == there, point


def is_memory(point: str) -> bool:
    return ":allocate." in point or ":activation." in point


def test_the_points_are_all_there_are_to_the_ledger_and_the_card(drill: Drill, points: list[str]) -> None:
    """Nothing is listed by hand, so what one would list is looked for here."""
    kinds = {point.rpartition(".")[0] for point in points}
    assert {"apply:allocate", "apply:copy", "apply:wait", "apply:unpin", "validate:copy", "commit:trim"} <= kinds
    assert {"validate:activation", "validate:report", "apply:report"} <= kinds


def test_slow_operations_change_nothing(drill: Drill, points: list[str]) -> None:
    kinds = sorted({point.rpartition(".")[0] for point in points if ":activation." not in point})
    ending = drill.at(",".join(f"{kind}.1+=slow" for kind in kinds))
    assert ending.started.phase == "Ready"
    assert ending.started.output() == drill.output


@pytest.mark.parametrize("kind", ["allocate", "copy", "record", "wait", "counters"])
def test_a_card_that_stays_broken_serves_nothing(drill: Drill, kind: str) -> None:
    """From the second such operation of apply on, every one fails: nothing can be proven any more."""
    ending = drill.at(f"apply:{kind}.2+,rollback:{kind}.1+")
    assert ending.started.phase == "Failed"
    assert f":{kind}." in ending.said()
    assert not ending.started.progress.door.open
    drill.to_seed()
    assert drill.state() == drill.at_seed
    assert ending.started.output() == drill.output
