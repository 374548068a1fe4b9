"""A fault at every single operation of a rollback: never a placement that is not proven, never weights that are lost.

A move back that fails ends the process, as the container's restart is the way out. A proof that fails keeps the door
shut. Either way both causes are told, the bits are there, ledger and card agree, and the next start is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.drills import Drill, drill_on

WHY = "validate.run"
"""What is rolled back, without a request that would take time."""
SAMPLED = 251


@pytest.fixture(scope="module")
def drill(checkpoint: Path) -> Iterator[Drill]:
    with drill_on(checkpoint, "40Mi", "32x32x1@1") as drill:
        yield drill


@pytest.fixture(scope="module")
def points(drill: Drill) -> list[str]:
    found = [point for point in drill.points(WHY) if point.startswith(("rollback:", "commit:"))]
    activations = [point for point in found if ":activation." in point]
    return [point for point in found if point not in activations] + activations[::SAMPLED]


def test_a_fault_at_any_point_ends_in_a_shut_door_or_in_no_process(drill: Drill, points: list[str]) -> None:
    assert any(point.startswith("rollback:") for point in points)
    assert any(point.startswith("commit:") for point in points)
    for point in points:
        memory = ":allocate." in point or ":activation." in point
        ending = drill.at(f"{point}+" if memory else point, WHY)
        if ":report." in point:
            assert ending.started.phase == "RolledBack", point
            continue
        assert ending.started.phase == "Failed", point
        assert not ending.started.progress.door.open
        told = ending.died or ending.started.error
        assert f"fault {point.rpartition('.')[0] if memory else point}" in told
        assert f"fault {WHY} was injected" in told
        # A buffer is read back where it leaves the device: a move back that fails in it ends the process, too.
        moving = any(one in point for one in (":pin.", ":counters.", ":read_back.")) or point.startswith("commit:")
        assert (ending.died is not None) is (moving and not told.startswith("the seed placement")), (point, told)
        found = drill.state()
        assert (found.bits, found.hooks) == (drill.at_seed.bits, drill.at_seed.hooks), point
        drill.engine.check()
        drill.to_seed()
        assert drill.state() == drill.at_seed, point
        assert drill.measured.output() == drill.output, point
