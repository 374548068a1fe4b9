"""Events, lists and answers in any order: the newest version stays, and what is gone stays gone."""

from __future__ import annotations

import copy

import pytest
from observations import KEY, deployment_of_user, pod

from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, POD, Json
from stowplan_operator.observed import Key, Observed

DD = deployment_of_user()


def version(raw: Json, number: int, uid: str | None = None) -> Json:
    changed = copy.deepcopy(raw)
    changed["metadata"] |= {"resourceVersion": str(number), "uid": uid or raw["metadata"]["uid"]}
    return changed


def versions(store: Observed) -> list[str]:
    return [raw["metadata"]["resourceVersion"] for raw in store.snapshot(KEY).pods]


@pytest.mark.parametrize(("second", "kept", "news"), [(9, "10", False), (10, "10", False), (11, "11", True)])
def test_only_a_newer_version_replaces(second: int, kept: str, news: bool) -> None:
    store = Observed()
    assert store.put(POD, version(pod(DD), 10)) == KEY
    assert (store.put(POD, version(pod(DD), second)) == KEY) is news
    assert versions(store) == [kept]


def test_a_deleted_object_does_not_come_back_with_a_late_event() -> None:
    store = Observed()
    store.put(POD, version(pod(DD), 10))
    assert store.remove(POD, version(pod(DD), 12)) == KEY
    assert store.put(POD, version(pod(DD), 11)) is None
    assert versions(store) == []
    assert store.put(POD, version(pod(DD), 13, "another")) == KEY


def test_the_late_deletion_of_an_earlier_uid_leaves_its_successor() -> None:
    store = Observed()
    store.put(POD, version(pod(DD), 13, "another"))
    store.remove(POD, version(pod(DD), 12))
    assert versions(store) == ["13"]


def test_k9_a_list_repairs_lost_events() -> None:
    store = Observed()
    store.put(POD, version(pod(DD, "lost-deletion", uid="a"), 10))
    store.put(POD, version(pod(DD, "lost-change", uid="b"), 10))
    store.put(POD, version(pod(DD, "newer-than-the-list", uid="c"), 30))
    listed = [version(pod(DD, "lost-change", uid="b"), 15), version(pod(DD, "lost-creation", uid="d"), 16)]
    store.replace(POD, listed, version=20)
    found = {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in store.snapshot(KEY).pods}
    assert found == {"lost-change": "15", "lost-creation": "16", "newer-than-the-list": "30"}


def test_a_list_of_one_namespace_says_nothing_of_others() -> None:
    store = Observed()
    store.put(POD, pod(DD))
    store.replace(POD, [], version=99, namespaces=("elsewhere",))
    assert versions(store) == ["1"]


def test_a_key_is_known_while_anything_of_it_is() -> None:
    store = Observed()
    store.put(DIFFUSION_DEPLOYMENT, DD)
    store.put(POD, pod(DD))
    store.remove(DIFFUSION_DEPLOYMENT, DD)
    assert store.deployments() == {KEY}
    assert store.snapshot(KEY).dd is None
    store.remove(POD, pod(DD))
    assert store.deployments() == set()
    assert store.snapshot(Key("studio", "unknown")).pods == ()
