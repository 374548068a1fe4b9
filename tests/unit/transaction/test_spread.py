"""How far apart two outputs are."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan_agent.transaction import distance, nearest, strays
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


@pytest.mark.parametrize(("value", "away"), [(0.0, False), (0.5, False), (0.51, True), (float("nan"), True)])
def test_a_run_may_be_twice_as_far_from_others_as_they_are_from_each_other(value: float, away: bool) -> None:
    assert strays(frames(value), [frames(0.0), frames(-0.25)], 0.25) is away
