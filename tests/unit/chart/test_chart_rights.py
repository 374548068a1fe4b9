"""The rights that the chart gives, read off what it renders; tests/cluster/test_rights.py tries them."""

from __future__ import annotations

from typing import Any

from localcluster.chart import template
from stowplan_api.contract import AGENT_ROLE


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def test_no_right_is_wider_than_named() -> None:
    objects = template({"aggregateRoles": {"enabled": False}})
    rules = [rule for role in of_kind(objects, "ClusterRole") for rule in role["rules"]]
    words = {word for rule in rules for part in rule.values() for word in part}
    assert not {"*", "secrets", "escalate", "impersonate", "delete", "deletecollection", "update"} & words
    (bind,) = [rule for rule in rules if "bind" in rule["verbs"]]
    assert bind["resourceNames"] == [AGENT_ROLE]
    assert bind["resources"] == ["clusterroles"]


def test_agents_may_touch_nothing_but_placements() -> None:
    (role,) = [role for role in of_kind(template(), "ClusterRole") if role["metadata"]["name"] == AGENT_ROLE]
    assert {word for rule in role["rules"] for word in rule["resources"]} == {
        "residencyplacements",
        "residencyplacements/status",
    }


def test_named_namespaces_bound_the_operators_rights() -> None:
    objects = template({"watchNamespaces": ["red", "blue"]})
    assert of_kind(objects, "ClusterRoleBinding") == []
    assert [item["metadata"]["namespace"] for item in of_kind(objects, "RoleBinding")] == ["red", "blue"]


def test_people_get_models_by_the_roles_that_they_have() -> None:
    def aggregated(role: dict[str, Any]) -> set[str]:
        return {label.rpartition("-")[2] for label in role["metadata"]["labels"] if "aggregate-to-" in label}

    before = template({"aggregateRoles": {"enabled": False}})
    edit, view = (item for item in template() if item not in before)
    assert (aggregated(edit), aggregated(view)) == ({"edit", "admin"}, {"view", "edit", "admin"})
    rules = [*edit["rules"], *view["rules"]]
    assert {group for rule in rules for group in rule["apiGroups"]} == {"stowplan.dev"}
    assert not [resource for rule in rules for resource in rule["resources"] if resource.endswith("/status")]
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_c4_nothing_stands_between_the_api_server_and_pods() -> None:
    """With no operator there is no pod that cannot be made or deleted: no webhook, and a policy on one kind of ours."""
    objects = template()
    assert not [item["kind"] for item in objects if "Webhook" in item["kind"]]
    (policy,) = of_kind(objects, "ValidatingAdmissionPolicy")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    assert [(rule["apiGroups"], rule["resources"]) for rule in rules] == [
        (["stowplan.dev"], ["residencyplacements/status"])
    ]
