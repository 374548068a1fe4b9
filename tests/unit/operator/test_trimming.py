"""What is kept of an object decides as the whole object does, and is small."""

from __future__ import annotations

import json

from generated import observations
from hypothesis import given, settings
from observations import NOW, SETTINGS, deployment_of_user, pod, snapshot

from stowplan_operator.decide import decide
from stowplan_operator.kinds import DEPLOYMENT, DIFFUSION_DEPLOYMENT, POD, Json, kind_of
from stowplan_operator.pod import view
from stowplan_operator.trimming import trimmed


def as_the_server_sends_it(raw: Json) -> Json:
    """A pod with what the operator does not read."""
    whole: Json = json.loads(json.dumps(raw))
    whole["spec"] = {"containers": [{"name": "server", "env": [{"name": f"V{n}", "value": "x"} for n in range(40)]}]}
    whole["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {f"f:{n}": {} for n in range(99)}}]
    whole["metadata"]["annotations"] = {"cni.example/networks": "x" * 500}
    whole["status"]["conditions"].append({"type": "ContainersReady", "status": "True"})
    for entry in whole["status"].get("containerStatuses", []):
        entry |= {"imageID": "sha256:" + "0" * 64, "containerID": "containerd://" + "0" * 64, "volumeMounts": []}
    return whole


@settings(max_examples=100, deadline=None)
@given(observations())
def test_a_decision_is_the_same_on_what_is_kept(objects: list[Json]) -> None:
    whole = [as_the_server_sends_it(raw) if raw["kind"] == "Pod" else raw for raw in objects]
    assert decide(snapshot(*whole), NOW, SETTINGS) == decide(snapshot(*objects), NOW, SETTINGS)


def test_a_pod_is_read_alike_and_kept_in_little() -> None:
    whole = as_the_server_sends_it(pod(deployment_of_user(), podIP="10.0.0.1"))
    kept = trimmed(POD, whole)
    assert view(kept) == view(whole)
    assert trimmed(POD, kept) == kept
    assert len(json.dumps(kept)) < 1200


def test_a_deployment_keeps_its_spec_and_of_its_annotations_ours() -> None:
    dd = deployment_of_user()
    dd["metadata"]["annotations"] |= {
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 5000,
        "stowplan.dev/recalibrate": "monday",
    }
    kept = trimmed(DIFFUSION_DEPLOYMENT, dd)
    assert kept["metadata"]["annotations"] == {"stowplan.dev/recalibrate": "monday"}
    assert kept["spec"] == dd["spec"]
    assert "last-applied" in json.dumps(dd), "the object itself is not changed"


def test_an_object_that_is_compared_field_by_field_is_kept_whole() -> None:
    raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "wan", "managedFields": [{"manager": "stowplan-workload"}, {"manager": "kubectl"}]},
        "spec": {"replicas": 1, "paused": False},
    }
    kept = trimmed(kind_of(raw), raw)
    assert kind_of(raw) == DEPLOYMENT
    assert kept["spec"] == raw["spec"]
    assert kept["metadata"]["managedFields"] == [{"manager": "stowplan-workload"}]
