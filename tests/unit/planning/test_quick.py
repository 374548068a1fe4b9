"""Of many options only those are made that are fast enough: which are many must change no answer."""

from __future__ import annotations

import random

import numpy as np
import pytest
from examples import component, interval, made, small_record
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import solve, space
from stowplan_agent.planning.setting import setting_of
from stowplan_api.record import CalibrationRecord

chance = st.randoms(use_true_random=False)
NEVER, ALWAYS = 1 << 60, -1


def answer(record: CalibrationRecord, long: int) -> dict[str, object]:
    """The plan where a component of more than ``long`` shapes has many; without how much work it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "LONG", long)
        said = solve(record).to_json()
    said["proof"].pop("options")
    worth = said.pop("worth", None) or {}
    return said | {name: pytest.approx(seconds, rel=1e-9, abs=1e-12) for name, seconds in worth.items() if seconds}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(chance)
def test_the_answer_is_the_same_whether_all_options_are_made_or_only_fast_ones(choose: random.Random) -> None:
    record = small_record(choose)
    assert answer(record, ALWAYS) == answer(record, NEVER)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(chance, st.floats(0, 1), st.floats(0, 1))
def test_quick_rows_are_those_within_both_limits(choose: random.Random, fast: float, small: float) -> None:
    record = small_record(choose)
    for place in range(len(record.components)):
        rows = setting_of(record).spaces[place].coarse(scarce=False)
        seconds, held = rows.times[:, -1], rows.bytes[:, :2].sum(axis=1)
        most, room = float(np.quantile(seconds, fast)), float(np.quantile(held, small))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(space, "LONG", ALWAYS)
            found = setting_of(record).spaces[place].quick(most, room)
        within, many = (seconds <= most) & (held <= room), rows.shape >= 0
        shapes = set(found.shape.tolist())
        assert shapes >= set(rows.shape[within].tolist())
        assert not shapes & set(rows.shape[many & ~within].tolist())


def test_a_component_of_too_many_ways_says_what_it_leaves_out() -> None:
    parts = [component("denoiser", 0.1, [0.1] * 60), component("vae", 0.1)]
    parts[0]["groups"].append(parts[0]["groups"][0] | {"name": "others"})
    record = made(parts, [interval("denoiser", 8, 0.5, layers=60), interval("vae", 1, 0.5)], card=4)
    assert solve(record).proof["leftOut"] == ["the groups of denoiser share one policy and one number of slots"]
