"""The operator on the real API server: what it creates, reports, leaves alone, and takes away."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from cluster.others_objects import autoscaler, webhook_that_never_answers
from cluster.played import Operator, Studio, deployment, until

MEASURED: dict[str, Any] = {
    "ranks": [
        {
            "rank": 0,
            "device": "Emulated 40 MiB",
            "capacityBytes": 40 << 20,
            "reserveBytes": 1 << 20,
            "peakBytes": 38 << 20,
            "linkBytesPerSecond": 1_000_000_000,
            "pinnedBytes": 0,
        }
    ],
    "components": [
        {
            "name": "vae",
            "mode": "Resident",
            "residentLayers": 0,
            "layers": 0,
            "deviceBytes": 3 << 20,
            "pinnedBytes": 0,
            "lifetime": "Permanent",
        }
    ],
    "validation": {"milliseconds": 504, "referenceMilliseconds": 504, "peakBytes": 38 << 20, "bitEqual": True},
}


def ready(studio: Studio, *, other_than: str = "") -> str:
    """Play the agent of the one pod, with measurements, until its deployment is Ready; the pod's name."""
    pod = studio.running_pod(other_than=other_than)
    studio.agent_says(pod, "True", **MEASURED)
    studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")
    return pod


def test_children_belong_to_the_deployment_and_go_with_it(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    pod = ready(studio)
    uid = studio.get("dd", "tiny")["metadata"]["uid"]
    children = ("deployment/tiny", "service/tiny", "serviceaccount/tiny-agent", "rolebinding/tiny-agent", "pdb/tiny")
    for child in children:
        (owner,) = studio.get(*child.split("/"))["metadata"]["ownerReferences"]
        assert owner["uid"] == uid
    slices = studio.cluster.json("-n", studio.namespace, "get", "endpointslices")["items"]
    assert [endpoint["conditions"]["ready"] for entry in slices for endpoint in entry["endpoints"]] == [True]
    status = studio.get("dd", "tiny")["status"]
    assert status["placement"] == ["vae: Resident, 3 MiB on the device, Permanent"]
    assert (status["device"], status["peakBytes"], status["requestMilliseconds"]) == ("Emulated 40 MiB", 38 << 20, 504)
    reasons = {"Created", "PlacementValidated", "GateOpened", "Ready"}
    assert {reason for reason in reasons if studio.events(reason)} == reasons

    studio.kubectl("delete", "dd/tiny")
    for gone in (*children, f"pod/{pod}", f"rp/{pod}"):
        studio.kubectl("wait", "--for=delete", gone, "--timeout=60s")
    assert "Traceback" not in operator.log()
    assert "forbidden" not in operator.log()


def test_k5_k6_a_restarted_operator_writes_nothing(studio: Studio, operator: Operator, tmp_path: Path) -> None:
    studio.apply(deployment())
    ready(studio)
    operator.stop()
    again = Operator(studio.cluster, studio.namespace, tmp_path / "again.log", resync_seconds=5)
    again.start()
    try:
        # Ten resyncs' worth of reconciles would all write if one did; three lists of everything are enough to see it.
        until(
            lambda: again.counted("stowplan_operator_api_requests_total", verb="list", kind="Deployment") >= 3,
            "three resyncs have run",
        )
        until(lambda: again.counted("stowplan_operator_reconciles_total", result="unchanged") >= 3, "all were decided")
        assert again.writes() == 0
    finally:
        again.stop()


def test_k5_a_rollout_restart_of_the_child_survives(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    first = ready(studio)
    studio.kubectl("rollout", "restart", "deployment/tiny")
    ready(studio, other_than=first)
    annotations = studio.get("deployment", "tiny")["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in annotations


def test_k3_a_changed_spec_is_not_ready_until_new_pods_are_validated(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    first = ready(studio)
    changed = deployment()
    changed["spec"]["serving"]["env"] = [{"name": "A", "value": "1"}]
    studio.apply(changed)
    studio.wait("dd/tiny", ".status.observedGeneration", "2")
    assert studio.condition("dd/tiny", "Ready")["status"] == "False"
    second = ready(studio, other_than=first)
    assert studio.get("rp", second)["spec"]["generation"] == 2
    assert studio.get("dd", "tiny")["status"]["validatedReplicas"] == 1


def test_k2_a_container_that_cannot_start_is_named(studio: Studio, operator: Operator) -> None:
    broken = deployment()
    broken["spec"]["podTemplate"]["spec"]["containers"][0]["command"] = ["sh", "-c", "exit 3"]
    studio.apply(broken)
    studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "PodFailed")
    until(
        lambda: "CrashLoopBackOff, last exit Error (code 3)" in studio.condition("dd/tiny", "Ready")["message"],
        "the message tells of the crash loop",
    )
    assert studio.condition("dd/tiny", "Degraded")["status"] == "True"


def test_k4_a_quota_error_reaches_the_user(studio: Studio, operator: Operator) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    studio.apply(quota)
    studio.wait("resourcequota/none", ".status.hard.pods", "0")
    studio.apply(deployment())
    studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "CreateFailed")
    assert "exceeded quota: none" in studio.condition("dd/tiny", "Ready")["message"]


def test_nothing_that_fits_stalls_with_the_agents_sentence(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    sentence = "interval 2 (vae decode) is 1,048,576 bytes short of 40 MiB; 1 frame fewer would fit"
    infeasible = {"type": "Applied", "status": "False", "reason": "Infeasible", "message": sentence}
    studio.agent_says(pod, "False", phase="Failed", conditions=[infeasible])
    studio.kubectl("wait", "--for=condition=Stalled", "dd/tiny", "--timeout=60s")
    assert sentence in studio.kubectl("describe", "dd", "tiny")
    assert studio.condition(f"pod/{pod}", "Ready")["status"] == "False"


def test_k12_scale_by_hand_and_by_an_autoscaler_rolls_nothing(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    first = ready(studio)
    studio.kubectl("scale", "dd/tiny", "--replicas=2")
    studio.wait("deployment/tiny", ".spec.replicas", "2")
    second = studio.running_pod(other_than=first)
    studio.agent_says(second, "True")
    studio.wait("dd/tiny", ".status.readyReplicas", "2")
    assert {pod["metadata"]["name"] for pod in studio.pods()} == {first, second}
    assert studio.get("dd", "tiny")["status"]["selector"] == "stowplan.dev/deployment=tiny"

    # Kubernetes' own autoscaler, which needs no metric to go to its minimum.
    studio.apply(autoscaler(minimum=3))
    studio.wait("deployment/tiny", ".spec.replicas", "3")
    studio.wait("hpa/tiny", ".status.desiredReplicas", "3")
    assert studio.condition("hpa/tiny", "AbleToScale")["status"] == "True"
    assert studio.get("dd", "tiny")["spec"]["replicas"] == 3
    assert {first, second} < {pod["metadata"]["name"] for pod in studio.pods()}


def test_paused_keeps_the_pods_and_keeps_up_the_gate(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    changed = deployment(paused=True)
    changed["spec"]["serving"]["env"] = [{"name": "A", "value": "1"}]
    studio.apply(changed)
    studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "Paused")
    studio.agent_says(pod, "True")
    studio.wait_gate(pod, "True")
    assert [entry["metadata"]["name"] for entry in studio.pods()] == [pod]


def test_what_somebody_else_made_is_not_taken_over(studio: Studio, operator: Operator) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "tiny"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 1}]},
    }
    studio.apply(theirs)
    studio.apply(deployment())
    studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "CreateFailed")
    message = studio.condition("dd/tiny", "Ready")["message"]
    assert message.startswith("Service tiny was refused: one of this name exists and belongs to something else")
    assert studio.get("service", "tiny")["spec"]["selector"] == {"app": "theirs"}
    studio.kubectl("delete", "service/tiny")
    ready(studio)
    assert studio.get("service", "tiny")["spec"]["selector"] == {"stowplan.dev/deployment": "tiny"}


def test_a_misspelt_field_of_the_pod_template_is_named(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment(podTemplate={"spec": {"nodeSelecter": {"a": "b"}}}))
    studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "CreateFailed")
    assert "nodeSelecter" in studio.condition("dd/tiny", "Ready")["message"]


def test_a_field_that_leaves_the_spec_leaves_the_child(studio: Studio, operator: Operator) -> None:
    labelled = deployment()
    labelled["spec"]["podTemplate"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    studio.apply(labelled)
    studio.kubectl("wait", "--for=create", "deployment/tiny", "--timeout=60s")
    assert "nodeSelector" in _pod_spec(studio)
    studio.kubectl("patch", "dd", "tiny", "--type=json", "-p", json.dumps([_remove("/nodeSelector")]))
    until(lambda: "nodeSelector" not in _pod_spec(studio), "the node selector is gone from the Deployment")


def test_two_operators_at_once_do_no_harm(studio: Studio, operator: Operator, tmp_path: Path) -> None:
    other = Operator(studio.cluster, studio.namespace, tmp_path / "other.log")
    other.start()
    try:
        studio.apply(deployment())
        pod = ready(studio)
        studio.kubectl("exec", pod, "--", "sh", "-c", "touch /tmp/stop")
        studio.wait_gate(pod, "False")
        studio.wait(f"pod/{pod}", ".status.containerStatuses[0].restartCount", "1")
        studio.wait(f"pod/{pod}", ".status.containerStatuses[0].started", "true")
        ready(studio)
        assert len(studio.events("GateOpened")) == 2
        assert len(studio.events("GateClosed")) == 1
        assert len(studio.events("Created")) == 5
    finally:
        other.stop()
    for process in (operator, other):
        assert "Traceback" not in process.log()


def test_k13_children_that_answer_500_are_told_and_not_created_after_the_deletion(
    studio: Studio, operator: Operator
) -> None:
    webhook = webhook_that_never_answers(studio.namespace)
    studio.apply(webhook)
    try:
        studio.apply(deployment())
        studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "CreateFailed")
        assert "failed calling webhook" in studio.condition("dd/tiny", "Ready")["message"]
        studio.kubectl("delete", "dd/tiny", "--timeout=30s")
    finally:
        studio.kubectl("delete", "validatingwebhookconfiguration", webhook["metadata"]["name"])
    # A second deployment shows that the operator goes on, and that by then the first would have been there.
    studio.apply(deployment("second"))
    studio.kubectl("wait", "--for=create", "deployment/second", "--timeout=90s")
    assert studio.kubectl("get", "deployments", "-o", "name").split() == ["deployment.apps/second"]


def test_k13_a_deployment_that_is_deleted_at_once_leaves_nothing(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    studio.kubectl("delete", "dd/tiny")

    def left() -> str:
        kinds = "dd,rp,deployments,services,pdb,pods,rolebindings"
        return studio.kubectl("get", kinds, "-l", "stowplan.dev/deployment=tiny", "-o", "name")

    until(lambda: not left(), "nothing is left")
    with pytest.raises(CalledProcessError):
        studio.kubectl("get", "dd", "tiny")
    assert "Traceback" not in operator.log()
    assert "forbidden" not in operator.log()


def _pod_spec(studio: Studio) -> dict[str, Any]:
    spec: dict[str, Any] = studio.get("deployment", "tiny")["spec"]["template"]["spec"]
    return spec


def _remove(path: str) -> dict[str, str]:
    return {"op": "remove", "path": f"/spec/podTemplate/spec{path}"}
