"""C2: what the operator's role gives is what the operator uses, call by call, as the API server's audit log has it.

One deployment is taken through its life under the chart's own role. No call is refused, and no right is left over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.played import Studio, deployment
from cluster.releases import OPERATOR, installed, namespaced
from localcluster import chart
from localcluster.client import Cluster
from stowplan_api.contract import STORED_START_PATH

Right = tuple[str, str, str]
"""Group, resource (with its subresource) and verb, as a rule of a role names them."""
NAMESPACE = "test-operator-rights"
AFTER_A_LOST_RACE: set[Right] = {("", "pods", "get"), ("stowplan.dev", "residencyplacements", "get")}
"""Used when a write met 409, so when another writer was faster than a watch; tests/unit/operator plays that."""


@pytest.fixture(scope="module")
def calls(local_cluster: Cluster) -> Iterator[list[dict[str, Any]]]:
    """What the operator asked of the API server while a deployment came, served, changed, and went."""
    began = len(local_cluster.audit())
    changed = {"shapes": [{"name": "clip", "width": 64, "height": 64, "frames": 5, "steps": 5}]}
    with installed(local_cluster, wait=True, agent={"podTemplate": {}}), namespaced(local_cluster, NAMESPACE) as studio:
        studio.apply(deployment("tiny"))
        serve(studio, first := studio.running_pod())
        studio.apply(deployment("tiny", workload=changed))
        studio.kubectl("wait", "--for=delete", f"pod/{first}", "--timeout=90s")
        serve(studio, studio.running_pod(other_than=first))
        studio.kubectl("delete", "dd/tiny", "--timeout=60s")
        yield [entry for entry in local_cluster.audit()[began:] if entry["user"]["username"] == OPERATOR]


def serve(studio: Studio, pod: str) -> None:
    """Play the agent of a pod until the deployment is Ready."""
    measured = {"type": "Calibrated", "status": "True", "reason": "Measured", "message": ""}
    start = json.dumps({"fingerprint": "0123456789abcdef", "provenAt": "2026-01-01T00:00:00Z"})
    leave = f"mkdir -p /tmp/www/v1 && echo '{start}' > /tmp/www{STORED_START_PATH}"
    studio.kubectl("exec", pod, "--container=server", "--", "sh", "-c", leave)
    studio.agent_says(pod, "True", conditions=[measured])
    studio.kubectl("wait", "--for=create", "configmap/tiny-starts", "--timeout=60s")
    studio.wait_gate(pod, "True")
    studio.wait_condition("dd/tiny", "Ready", "True")


def granted() -> set[Right]:
    """Every right in the operator's role, as the chart renders it."""
    (role,) = [
        item
        for item in chart.template()
        if item["kind"] == "ClusterRole" and item["metadata"]["name"] == f"{chart.NAMESPACE}:stowplan-operator"
    ]
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(entry: dict[str, Any]) -> set[Right]:
    """The rights that one call took; the server asks for more than the verb of two of them."""
    ref = entry["objectRef"]
    group, resource = ref.get("apiGroup", ""), "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
    rights = {(group, resource, entry["verb"])}
    if entry["verb"] == "patch" and entry["responseStatus"]["code"] == 201:
        rights |= {(group, resource, "create")}  # A server-side apply of what was not there.
    if resource == "rolebindings" and entry["verb"] in ("create", "patch"):
        rights |= {("rbac.authorization.k8s.io", "clusterroles", "bind")}
    return rights


def test_c2_no_call_is_refused(calls: list[dict[str, Any]]) -> None:
    refused = [entry for entry in calls if entry["annotations"]["authorization.k8s.io/decision"] != "allow"]
    assert [(entry["verb"], entry["requestURI"]) for entry in refused] == []


def test_c2_every_call_is_in_the_rendered_role(calls: list[dict[str, Any]]) -> None:
    assert {right for entry in calls for right in used(entry)} - granted() == set()


def test_c2_no_right_is_left_over(calls: list[dict[str, Any]]) -> None:
    assert granted() - {right for entry in calls for right in used(entry)} <= AFTER_A_LOST_RACE


def test_c2_the_role_is_what_lets_the_calls_in(calls: list[dict[str, Any]]) -> None:
    """Not some wider role that the account happens to have beside it."""
    own = {right for entry in calls for right in used(entry)} & granted()
    reasons = {entry["annotations"]["authorization.k8s.io/reason"] for entry in calls}
    assert own
    assert all(f'ClusterRole "{chart.NAMESPACE}:stowplan-operator"' in reason for reason in reasons)
