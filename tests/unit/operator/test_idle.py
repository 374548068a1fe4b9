"""Nothing changed means nothing written: whatever is observed, deciding ends, and then stays silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from decisions import running, written
from generated import observations
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import NOW, SETTINGS, condition, deployment_of_user, measured, placement, pod, snapshot

from stowplan_operator.decide import decide
from stowplan_operator.kinds import Json

REFUSALS = st.sampled_from([(), ("Service wan was refused: quota",)])


@settings(max_examples=300, deadline=None)
@given(observations(), REFUSALS, st.integers(1, 100_000))
def test_k5_a_second_reconcile_of_the_same_writes_nothing(
    objects: list[Json], refusals: tuple[str, ...], later: int
) -> None:
    """However much later it comes: no decision depends on the time alone."""
    for round_ in range(6):
        decision = decide(snapshot(*objects), NOW + timedelta(seconds=round_), SETTINGS, refusals)
        if not decision:
            break
        objects = written(objects, decision)
    assert not decide(snapshot(*objects), NOW + timedelta(seconds=later), SETTINGS, refusals)


@settings(max_examples=100, deadline=None)
@given(observations(), REFUSALS)
def test_deciding_is_a_function_of_what_was_observed(objects: list[Json], refusals: tuple[str, ...]) -> None:
    first = decide(snapshot(*objects), NOW, SETTINGS, refusals)
    assert decide(snapshot(*reversed(objects)), NOW, SETTINGS, refusals) == first


def test_k17_a_thousand_reconciles_of_one_long_error_are_one_short_event() -> None:
    dd = deployment_of_user()
    long = condition("Applied", "False", "Infeasible", "interval 3 is short; " * 500)
    objects = [*running(dd, pod(dd, ready=False)), placement(validated="False", phase="Failed", conditions=(long,))]
    names, notes = set(), []
    for number in range(1000):
        decision = decide(snapshot(*objects), NOW + timedelta(seconds=number), SETTINGS)
        told = [event for event in decision.events if event["reason"] == "PlacementInfeasible"]
        names |= {event["metadata"]["name"] for event in told}
        notes += [event["note"] for event in told]
        if number in (0, 400):
            # The status is lost once in between, so that the same transition is seen again.
            objects = written(objects, decision) if number == 0 else objects
    assert len(names) == 1
    assert all(len(note.encode()) <= 1024 for note in notes)


@pytest.mark.parametrize("seconds", [1, 60, 86_400])
def test_k5_time_alone_writes_nothing(seconds: int) -> None:
    dd = deployment_of_user()
    objects = running(dd, pod(dd), placement(**measured()))
    objects = written(objects, decide(snapshot(*objects), NOW, SETTINGS))
    assert not decide(snapshot(*objects), NOW + timedelta(seconds=seconds), SETTINGS)
