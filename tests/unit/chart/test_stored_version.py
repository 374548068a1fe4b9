"""K11: what the last version rendered is what this one renders, wherever a difference would restart somebody's pods."""

from __future__ import annotations

from typing import Any

import pytest

import stored_version
from stowplan_operator.decide.rollout import template_of

STORED = {dd["metadata"]["name"]: (dd, children) for dd, children in stored_version.deployments()}


def by_kind(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {manifest["kind"]: manifest for manifest in manifests}


@pytest.mark.parametrize("name", STORED)
def test_k11_no_pod_template_differs(name: str) -> None:
    dd, stored = STORED[name]
    before = by_kind(stored)["Deployment"]
    now = by_kind(stored_version.rendered(dd, template_of(before)))
    assert now["Deployment"]["spec"]["template"] == before["spec"]["template"]


@pytest.mark.parametrize("name", STORED)
def test_k11_no_child_is_given_up_and_no_immutable_field_differs(name: str) -> None:
    dd, stored = STORED[name]
    before, now = by_kind(stored), by_kind(stored_version.rendered(dd))
    assert before.keys() <= now.keys()
    assert {kind: now[kind]["metadata"]["name"] for kind in before} == {
        kind: child["metadata"]["name"] for kind, child in before.items()
    }
    assert now["Deployment"]["spec"]["selector"] == before["Deployment"]["spec"]["selector"]
    assert now["RoleBinding"]["roleRef"] == before["RoleBinding"]["roleRef"]
    assert now["Service"]["spec"].get("clusterIP") == before["Service"]["spec"].get("clusterIP")


def test_a_release_is_stored_with_everything_an_upgrade_must_take_over() -> None:
    kinds = {item["kind"] for item in stored_version.release()}
    assert {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "ServiceAccount", "Deployment"} < kinds


def test_this_version_can_be_stored(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_version, "RELEASE", tmp_path / "release.yaml")
    monkeypatch.setattr(stored_version, "CHILDREN", tmp_path / "children.yaml")
    stored_version.store()
    assert next(dd["metadata"]["name"] for dd, _ in stored_version.deployments()) == "everything"
    assert {item["kind"] for item in stored_version.release()} >= {"CustomResourceDefinition", "Deployment"}
