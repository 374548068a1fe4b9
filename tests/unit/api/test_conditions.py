"""Conditions: nothing changed means nothing written, and the transition time tells the truth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stowplan_api.conditions import (
    MESSAGE_LIMIT,
    Condition,
    drop_condition,
    find,
    is_true,
    set_condition,
    shorten,
    timestamp,
)

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def started() -> tuple[Condition, ...]:
    return set_condition((), "Validated", "False", "Starting", "boot 1", generation=1, now=NOON)


def test_a_new_condition_carries_generation_and_time() -> None:
    (condition,) = started()
    assert condition.observed_generation == 1
    assert condition.last_transition_time == "2026-01-02T12:00:00Z"


def test_setting_what_is_there_returns_the_same_value() -> None:
    before = started()
    assert set_condition(before, "Validated", "False", "Starting", "boot 1", generation=1, now=LATER) is before


def test_setting_a_long_message_again_returns_the_same_value() -> None:
    text = "interval 3 is short; " * 200
    before = set_condition((), "Applied", "False", "Infeasible", text, generation=1, now=NOON)
    assert set_condition(before, "Applied", "False", "Infeasible", text, generation=1, now=LATER) is before


@pytest.mark.parametrize(
    ("reason", "message", "generation"),
    [("Failed", "boot 1", 1), ("Starting", "boot 2", 1), ("Starting", "boot 1", 2)],
)
def test_a_change_that_does_not_flip_keeps_the_time(reason: str, message: str, generation: int) -> None:
    (condition,) = set_condition(started(), "Validated", "False", reason, message, generation=generation, now=LATER)
    assert (condition.reason, condition.message, condition.observed_generation) == (reason, message, generation)
    assert condition.last_transition_time == "2026-01-02T12:00:00Z"


def test_a_flip_moves_the_time() -> None:
    (condition,) = set_condition(started(), "Validated", "True", "Proven", "", generation=1, now=LATER)
    assert condition.last_transition_time == "2026-01-02T12:05:00Z"


def test_order_is_kept_and_a_new_type_goes_last() -> None:
    two = set_condition(started(), "Applied", "False", "Starting", "", generation=1, now=NOON)
    flipped = set_condition(two, "Validated", "True", "Proven", "", generation=1, now=LATER)
    assert [condition.type for condition in flipped] == ["Validated", "Applied"]
    assert find(flipped, "Applied") is two[1]


def test_a_dropped_condition_is_gone_and_absence_is_not_true() -> None:
    conditions = set_condition((), "Stalled", "True", "PlacementFailed", "", generation=1, now=NOON)
    assert is_true(conditions, "Stalled")
    assert drop_condition(conditions, "Stalled") == ()
    assert not is_true((), "Stalled")
    assert find((), "Stalled") is None


@pytest.mark.parametrize("reason", ["", "has space", "1st", "ends:", "x" * 129])
def test_a_reason_is_one_stable_word(reason: str) -> None:
    with pytest.raises(ValidationError):
        set_condition((), "Ready", "True", reason, "", generation=1, now=NOON)


def test_times_are_utc_with_whole_seconds() -> None:
    elsewhere = datetime(2026, 1, 2, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert timestamp(elsewhere) == "2026-01-02T12:00:00Z"


@given(st.text(max_size=2000))
def test_a_message_fits_and_is_cut_at_a_character(message: str) -> None:
    kept = shorten(message)
    assert len(kept.encode()) <= MESSAGE_LIMIT
    assert kept == message or (kept.endswith("…") and message.startswith(kept[:-1]))
