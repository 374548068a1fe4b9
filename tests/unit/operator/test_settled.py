"""What is remembered of settled children saves rendering them and changes no decision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from decisions import running
from generated import observations
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import NOW, SETTINGS, deployment_of_user, placement, pod, snapshot

from stowplan_api.contract import ANNOTATION_RECALIBRATE
from stowplan_operator.decide import Settled, decide
from stowplan_operator.kinds import Json


def settled_objects() -> list[Json]:
    dd = deployment_of_user()
    return running(dd, pod(dd), placement())


def find(objects: list[Json], kind: str) -> Json:
    return next(raw for raw in objects if raw["kind"] == kind)


def changed_spec(objects: list[Json]) -> None:
    dd = find(objects, "DiffusionDeployment")
    dd["spec"]["serving"] = {"env": [{"name": "A", "value": "1"}]}
    dd["metadata"]["generation"] = 2


def asked_to_measure_anew(objects: list[Json]) -> None:
    find(objects, "DiffusionDeployment")["metadata"]["annotations"][ANNOTATION_RECALIBRATE] = "now"


def measured_anew(objects: list[Json]) -> None:
    find(objects, "DiffusionDeployment")["status"]["recalibrated"] = "now"


def another_of_its_name(objects: list[Json]) -> None:
    find(objects, "DiffusionDeployment")["metadata"]["uid"] = "another"


def child_of_others(objects: list[Json]) -> None:
    service = find(objects, "Service")
    service["spec"]["selector"] = {"app": "theirs"}
    service["metadata"]["resourceVersion"] = "7"


def child_is_gone(objects: list[Json]) -> None:
    objects.remove(find(objects, "PodDisruptionBudget"))


def child_was_made_again(objects: list[Json]) -> None:
    budget = find(objects, "PodDisruptionBudget")
    budget["metadata"]["uid"], budget["spec"] = "again", {}


CHANGES = [
    changed_spec,
    asked_to_measure_anew,
    measured_anew,
    another_of_its_name,
    child_of_others,
    child_is_gone,
    child_was_made_again,
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_a_child_is_seen_by_an_operator_that_knew_it_settled(
    change: Callable[[list[Json]], None],
) -> None:
    known, objects = Settled(), settled_objects()
    assert decide(snapshot(*objects), NOW, SETTINGS, settled=known).children == ()
    change(objects)
    decision = decide(snapshot(*objects), NOW, SETTINGS, settled=known)
    assert decision.children
    assert decision == decide(snapshot(*objects), NOW, SETTINGS)


def test_what_is_settled_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, objects = Settled(), settled_objects()
    before = decide(snapshot(*objects), NOW, SETTINGS, settled=known)

    def never(*_: Any) -> Any:
        raise AssertionError("rendered again")

    monkeypatch.setattr("stowplan_operator.decide.children.children", never)
    other = copy.deepcopy(objects)
    find(other, "Pod")["status"]["conditions"] = []
    assert decide(snapshot(*objects), NOW, SETTINGS, settled=known) == before
    assert decide(snapshot(*other), NOW, SETTINGS, settled=known).gates


@settings(max_examples=100, deadline=None)
@given(st.lists(observations(), min_size=2, max_size=3))
def test_a_memory_of_anything_changes_no_decision(histories: list[list[Json]]) -> None:
    """Versions tell one observation from another, as an API server's do."""
    known = Settled()
    for number, history in enumerate(histories, start=1):
        objects = copy.deepcopy(history)
        for raw in objects:
            raw["metadata"]["resourceVersion"] = f"{number}"
            if raw["kind"] == "DiffusionDeployment":
                raw["metadata"]["generation"] = number
        for _ in range(2):
            decision = decide(snapshot(*objects), NOW, SETTINGS, settled=known)
            assert decision == decide(snapshot(*objects), NOW, SETTINGS)
