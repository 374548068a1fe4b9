"""Of many options that are as fast, only those get their pins that can lock the fewest bytes: answers stay the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from examples import GIB, placement_of, record_of, small_record
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import reopened, solve, with_device_memory
from stowplan_agent.planning.openpins import least_locked, open_points
from stowplan_agent.planning.setting import setting_of
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord

chance = st.randoms(use_true_random=False)
MOST_ROWS = 2 * 56_726
"""Rows of a component that a plan may make where it has 56,726 shapes, and 31 million ways to pin them."""


def test_tens_of_thousands_of_shapes_that_are_as_fast_are_not_all_pinned() -> None:
    record = with_device_memory(record_of("hard-9-nothing-to-gain-h200.json"), 24 * GIB)
    plan = solve(record, current=placement_of("hard-9-nothing-to-gain-h200.current.json"))
    assert plan.status == "Optimal" and "withoutMovesSeconds" in plan.proof
    assert max(each["bounded"] for each in plan.proof["options"].values()) <= MOST_ROWS


@settings(max_examples=60, deadline=None, derandomize=True)
@given(chance)
def test_no_pins_of_a_shape_lock_less_than_is_said_and_are_as_fast(choose: random.Random) -> None:
    record = small_record(choose)
    for space in setting_of(record).spaces:
        if not space.component.groups or not space.visits.stays or space.fixed not in (None, "Layerwise"):
            continue
        shapes = np.arange(len(space.pricer.table))
        rows = space.priced(space.pinned(shapes))
        most = float(np.quantile(rows.times[:, -1], choose.random()))
        points = open_points(space.pricer, space.visits, shapes)
        least = least_locked(points, space.frame.ranks_of.sum(axis=0), most * (1 + 1e-9))
        fast = rows.take(rows.times[:, -1] <= most)
        assert (least[fast.shape] <= reopened.locked_bytes(fast) + 1).all()


@pytest.mark.parametrize("seed", [37, 63, 125, 131, 177, 237])
def test_the_answer_is_the_same_whether_all_pins_are_made_or_few(seed: int) -> None:
    record = small_record(random.Random(seed), ranks=1, tight="moves", count=2)
    for current in currents(record):
        assert answer(record, current, few=0) == answer(record, current, few=1 << 60)


def answer(record: CalibrationRecord, current: Placement, few: int) -> dict[str, object]:
    """The plan where all pins are made of no more than ``few`` rows; without how much work it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reopened, "FEW", few)
        patch.setattr(reopened, "AT_ONCE", max(few, 7))
        said = solve(record, current=current).to_json()
    said["proof"].pop("options")
    return said


def currents(record: CalibrationRecord) -> list[Placement]:
    """The best placements of this card and of others."""
    sizes = [int(record.ranks[0].capacity_bytes * share) for share in (0.6, 0.8, 1, 1.3)]
    found = [solve(with_device_memory(record, size)).placement for size in sizes]
    return [one for one in found if one is not None]
