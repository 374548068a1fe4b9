"""Builds what an operator may observe, for tables of decisions: a deployment, its children, pods and placements."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from stowplan_api.contract import LABEL_DEPLOYMENT, LABEL_TEMPLATE, READINESS_GATE, Manager
from stowplan_operator.decide.rollout import template_of
from stowplan_operator.kinds import DEPLOYMENT, DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, Json, Kind, kind_of
from stowplan_operator.observed import Key, Observed, Snapshot
from stowplan_operator.render import children, read_spec
from stowplan_operator.settings import Settings

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SETTINGS = Settings(agent_image="stowplan-agent:test", instance="operator-0")
KEY = Key("studio", "wan")
GIB = 1 << 30


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def deployment_of_user(*, generation: int = 1, status: Json | None = None, **spec: Any) -> Json:
    whole: Json = {
        "replicas": 1,
        "model": {"source": "hf://studio/wan", "dtype": "bfloat16"},
        "workload": {"shapes": [{"name": "clip", "width": 832, "height": 480, "frames": 81, "steps": 40}]},
        "resources": {"gpus": 1, "cpu": 8, "memory": "96Gi"},
    }
    return {
        "apiVersion": DIFFUSION_DEPLOYMENT.api_version,
        "kind": DIFFUSION_DEPLOYMENT.kind,
        "metadata": {
            "name": KEY.name,
            "namespace": KEY.namespace,
            "uid": "dd-uid",
            "generation": generation,
            "resourceVersion": "1",
            "labels": {"team": "video", "argocd.argoproj.io/instance": "studio"},
            "annotations": {"argocd.argoproj.io/tracking-id": "studio:wan"},
        },
        "spec": whole | spec,
        "status": status if status is not None else {"conditions": [condition("Ready", "False", "WaitingForPods")]},
    }


def condition(type_: str, status: str, reason: str, message: str = "", *, generation: int = 1, age: float = 60) -> Json:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": ago(age),
    }


def existing_children(dd: Json, *, pods: int = 1, deployment_status: Json | None = None) -> list[Json]:
    """The children as applied from this very dd, and a Deployment controller that has caught up."""
    found = []
    for number, manifest in enumerate(children(dd, read_spec(dd), SETTINGS)):
        there = copy.deepcopy(manifest)
        owned = {"manager": Manager.WORKLOAD.value, "operation": "Apply", "fieldsV1": {}}
        there["metadata"] |= {
            "uid": f"child-{number}",
            "resourceVersion": "1",
            "generation": 1,
            "managedFields": [owned],
        }
        if there["kind"] == DEPLOYMENT.kind:
            caught_up = {"observedGeneration": 1, "replicas": pods, "updatedReplicas": pods}
            there["status"] = caught_up | (deployment_status or {})
        found.append(there)
    return found


def template(dd: Json) -> str:
    return template_of(children(dd, read_spec(dd), SETTINGS)[-1])


def pod(
    dd: Json,
    name: str = "wan-7d4-abc",
    *,
    uid: str = "pod-uid",
    of_template: str | None = None,
    started: float | None = 300,
    ready: bool = True,
    gate: str | None = "True",
    server: Json | None = None,
    **status: Any,
) -> Json:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if gate is not None:
        since = ago(60)
        conditions.append(
            {"type": READINESS_GATE, "status": gate, "reason": "R", "message": "M", "lastTransitionTime": since}
        )
    state = {"running": {"startedAt": ago(started)}} if started is not None else {"waiting": {"reason": "Waiting"}}
    container = {"name": "server", "restartCount": 0, "state": state} | (server or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": KEY.namespace,
            "uid": uid,
            "resourceVersion": "1",
            "labels": {
                LABEL_DEPLOYMENT: KEY.name,
                LABEL_TEMPLATE: template(dd) if of_template is None else of_template,
            },
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"{KEY.name}-7d4", "uid": "rs", "controller": True}],
        },
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [container]} | status,
    }


def placement(
    name: str = "wan-7d4-abc",
    *,
    pod_uid: str = "pod-uid",
    started: float | None = 290,
    validated: str | None = "True",
    generation: int = 1,
    validated_for: int = 1,
    phase: str = "Ready",
    conditions: tuple[Json, ...] = (),
    **status: Any,
) -> Json:
    written: Json = {"phase": phase, "conditions": list(conditions)}
    if started is not None:
        written["agent"] = {"bootId": "boot", "startedAt": ago(started), "version": "0.1.0"}
    if validated is not None:
        reason = "Proven" if validated == "True" else "Starting"
        written["conditions"].append(condition("Validated", validated, reason, generation=validated_for))
    return {
        "apiVersion": RESIDENCY_PLACEMENT.api_version,
        "kind": RESIDENCY_PLACEMENT.kind,
        "metadata": {"name": name, "namespace": KEY.namespace, "uid": f"rp-{name}", "resourceVersion": "1"},
        "spec": {
            "deployment": KEY.name,
            "pod": {"name": name, "uid": pod_uid},
            "generation": generation,
            "limits": {"memoryBytes": 96 * GIB},
        },
        "status": written | status,
    }


def proven_start(name: str = "wan-7d4-abc", *, pod_uid: str = "pod-uid", age: float = 60, **more: Any) -> Json:
    """The placement of a boot that measured for itself and proved a plan ``age`` seconds ago."""
    made = placement(name, pod_uid=pod_uid, **more)
    made["status"]["conditions"][-1]["lastTransitionTime"] = ago(age)
    made["status"]["conditions"].append(condition("Calibrated", "True", "Measured"))
    return made


def measured() -> Json:
    """The parts of a ResidencyPlacement's status that tell what was measured."""
    rank = {
        "rank": 0,
        "device": "NVIDIA H200",
        "capacityBytes": 139 * GIB,
        "reserveBytes": GIB,
        "peakBytes": 100 * GIB,
        "linkBytesPerSecond": 50_000_000_000,
        "pinnedBytes": 0,
    }
    component = {
        "name": "transformer",
        "mode": "Layerwise",
        "residentLayers": 30,
        "layers": 40,
        "deviceBytes": 21 * GIB,
        "pinnedBytes": 7 * GIB,
        "lifetime": "Permanent",
    }
    proof = {"milliseconds": 61_000, "referenceMilliseconds": 60_500, "peakBytes": 100 * GIB, "bitEqual": True}
    return {"ranks": [rank], "components": [component], "resident": "30/40", "validation": proof}


def observed(*objects: Json) -> Observed:
    store = Observed()
    for raw in objects:
        store.put(_kind(raw), raw)
    return store


def snapshot(*objects: Json) -> Snapshot:
    return observed(*objects).snapshot(KEY)


def _kind(raw: Json) -> Kind:
    return POD if raw["kind"] == "Pod" else kind_of(raw)
