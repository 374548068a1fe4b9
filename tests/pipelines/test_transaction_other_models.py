"""A sample of the faults that tests/faults puts at every operation of a start, on an image model and on a UNet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faults.drills import drill_on

CARDS = {"tiny-flux": "24Mi", "tiny-sdxl": "10Mi"}
"""On which a part can be kept."""
SAMPLED = {"apply": 9, "validate": 61}


@pytest.mark.parametrize("model", CARDS)
def test_a_fault_at_some_points_of_a_start_is_undone_and_named(write_tiny: Callable[[str], Path], model: str) -> None:
    with drill_on(write_tiny(model), CARDS[model], "32x32@1") as drill:
        found = [point for point in drill.points() if ":report." not in point and ":activation." not in point]
        tried = [point for stage, every in SAMPLED.items() for point in of(found, stage)[::every]]
        assert len(tried) > 3
        for point in tried:
            memory = ":allocate." in point
            ending = drill.at(f"{point}+" if memory else point)
            assert ending.started.phase == "RolledBack", (point, ending.said())
            (rollback,) = ending.started.status.rollbacks
            assert f"fault {point.rpartition('.')[0] if memory else point}" in rollback.message
            assert drill.state() == drill.at_seed, point
            validation = ending.started.status.validation
            assert validation is not None and validation.bit_equal, point


def of(points: list[str], stage: str) -> list[str]:
    return [point for point in points if point.startswith(f"{stage}:")]
