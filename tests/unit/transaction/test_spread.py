"""How far apart two outputs are."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan_agent.transaction import distance, nearest
from stowplan_agent.transaction.spread import Frames


def frames(value: float, count: int = 2) -> Frames:
    return np.full((count, 4, 4, 3), value, np.float32)


def test_the_largest_difference_of_any_value() -> None:
    other = frames(0.5)
    other[1, 2, 3, 0] = 0.75
    assert distance(frames(0.5), other) == distance(other, frames(0.5)) == 0.25
    assert distance(other, other.copy()) == 0.0


@pytest.mark.parametrize("other", [frames(0.5, 3), frames(0.5)[:, :2], frames(float("nan"))])
def test_what_cannot_be_compared_is_far_away(other: Frames) -> None:
    assert distance(frames(0.5), other) == float("inf")


def test_the_nearest_run_counts() -> None:
    assert nearest(frames(0.5), [frames(0.0), frames(0.25), frames(1.0)]) == 0.25
