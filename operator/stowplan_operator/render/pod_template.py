"""The pod template: one server container, closed by the readiness gate from the start.

Three layers, each over the one before: what is rendered here, the administrator's template, the user's ``podTemplate``.
The last wins over everything, save for what makes the pod ours: the labels the operator selects on, and the gate.
"""

from __future__ import annotations

import json
from typing import Any, Final

from stowplan_api.contract import (
    AGENT_COMMAND,
    ANNOTATION_RECALIBRATE,
    HTTP_PORT_NAME,
    READINESS_GATE,
    RECORD_DIR,
    SERVER_CONTAINER,
    SPEC_FIELDS_NOT_SENT,
    Env,
    agent_account,
)
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.quantity import format_quantity
from stowplan_operator.kinds import Json
from stowplan_operator.render import several_devices
from stowplan_operator.render.merge import merge
from stowplan_operator.render.naming import labels, starts_name
from stowplan_operator.render.revisions import revised
from stowplan_operator.render.shared_devices import whole_devices
from stowplan_operator.settings import Settings

SCRATCH: Final = "/scratch"
"""HOME, temporary files and the hub's cache. The root file system is read-only."""
TEMPORARY: Final = "/tmp"
"""The same volume once more, for libraries that do not ask TMPDIR."""
STARTS_MOUNT: Final = "/stowplan/starts"
"""Where the stored starts of earlier pods are mounted, read-only."""
MODEL_MOUNT: Final = "/models"
"""Where the claim of a ``pvc://CLAIM/PATH`` source is mounted, read-only."""
_PVC: Final = "pvc://"
NOBODY: Final = 65532


def pod_template(
    name: str, spec: DiffusionDeploymentSpec, settings: Settings, recalibrate: str = "", standing: str = ""
) -> Json:
    """The complete pod template, with its hash as a label.

    Raises `MergeError` for a podTemplate that cannot fit, `SharedDeviceError` for a share of a device without a limit.

    Another ``recalibrate`` makes another template, so that every pod is replaced and measures anew. ``standing`` is the
    hash of the template that pods are made from now: one that an earlier version rendered of all of this is kept.
    """
    template = merge(_rendered(name, spec, settings), settings.agent_pod_template, "the operator's pod template")
    template = merge(template, spec.pod_template or {}, "spec.podTemplate")
    identity: Json = {
        "metadata": {"labels": labels(name)},
        "spec": {"readinessGates": [{"conditionType": READINESS_GATE}]},
    }
    if recalibrate:
        identity["metadata"]["annotations"] = {ANNOTATION_RECALIBRATE: recalibrate}
    return revised(whole_devices(merge(template, identity), spec), standing)


def _rendered(name: str, spec: DiffusionDeploymentSpec, settings: Settings) -> Json:
    volumes: list[Json] = [{"name": "scratch", "emptyDir": {}}]
    claim, _ = _claim(spec.model.source)
    if claim:
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    if _reuses(spec):
        # Optional: the first pod of a deployment starts before there is one.
        volumes.append({"name": "starts", "configMap": {"name": starts_name(name), "optional": True}})
    volumes += several_devices.volumes(spec)
    return {
        "metadata": {"labels": labels(name)},
        "spec": {
            "readinessGates": [{"conditionType": READINESS_GATE}],
            "serviceAccountName": agent_account(name),
            # Service links would put other services' STOWPLAN_... variables beside ours.
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": NOBODY,
                "runAsGroup": NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_server(name, spec, settings)],
            "volumes": volumes,
        },
    }


def _server(name: str, spec: DiffusionDeploymentSpec, settings: Settings) -> Json:
    mounts: list[Json] = [{"name": "scratch", "mountPath": path} for path in (SCRATCH, TEMPORARY)]
    if spec.model.source.startswith(_PVC):
        mounts.append({"name": "model", "mountPath": MODEL_MOUNT, "readOnly": True})
    if _reuses(spec):
        mounts.append({"name": "starts", "mountPath": STARTS_MOUNT, "readOnly": True})
    mounts += several_devices.mounts(spec)
    container: Json = {
        "name": SERVER_CONTAINER,
        "image": spec.serving.image or settings.agent_image,
        "command": list(AGENT_COMMAND),
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": spec.serving.port, "protocol": "TCP"}],
        "env": _environment(name, spec),
        "resources": _resources(spec),
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **_probes(),
    }
    policy = spec.serving.image_pull_policy or settings.agent_image_pull_policy
    return container | ({"imagePullPolicy": policy} if policy else {})


def _probes() -> Json:
    """Liveness never asks about warm-up; readiness is 503 until this boot validated, with or without an operator."""

    def get(path: str) -> Json:
        return {"httpGet": {"path": path, "port": HTTP_PORT_NAME, "scheme": "HTTP"}, "successThreshold": 1}

    return {
        # Five minutes for the process to import its libraries and listen; readiness starts only after that.
        "startupProbe": get("/liveness") | {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 150},
        # The gate is to follow a validation within 2 s, so readiness must not be what is waited for.
        "readinessProbe": get("/health") | {"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": get("/liveness") | {"periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def _resources(spec: DiffusionDeploymentSpec) -> Json:
    """Request equals limit: pinned pages cannot be reclaimed, and the agent takes its thread count from the quota."""
    resources = spec.resources
    amounts = {"cpu": str(resources.cpu), "memory": format_quantity(resources.memory)}
    if resources.gpus:
        amounts[resources.gpu_resource] = str(resources.gpus)
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _environment(name: str, spec: DiffusionDeploymentSpec) -> list[Json]:
    def field(path: str) -> Json:
        return {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}

    memory = {"containerName": SERVER_CONTAINER, "resource": "limits.memory", "divisor": "0"}
    variables: dict[str, Json] = {
        Env.SPEC.value: {"value": spec_text(spec)},
        Env.DEPLOYMENT.value: {"value": name},
        Env.NAMESPACE.value: field("metadata.namespace"),
        Env.POD_NAME.value: field("metadata.name"),
        Env.POD_UID.value: field("metadata.uid"),
        Env.MEMORY_LIMIT.value: {"valueFrom": {"resourceFieldRef": memory}},
        "HOME": {"value": SCRATCH},
        "TMPDIR": {"value": SCRATCH},
    }
    if spec.resources.gpus == 0:
        variables[Env.ACCELERATOR.value] = {"value": "emulated"}
    if _reuses(spec):
        variables[RECORD_DIR] = {"value": STARTS_MOUNT}
    for user in spec.serving.env:
        # The API server drops an empty value, so it is not sent: what is not sent cannot differ from what is there.
        variables[user.name] = {"value": user.value} if user.value else {}
    return [{"name": key, **value} for key, value in variables.items()]


def spec_text(spec: DiffusionDeploymentSpec) -> str:
    """The part of the spec that the agent acts on, as canonical JSON.

    Defaults are left out, so that an operator which knows a new field with a default renders the same pods as before.
    A ``pvc://CLAIM/PATH`` source becomes the path at which the claim is mounted.
    """
    sent: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    for field in SPEC_FIELDS_NOT_SENT:
        sent.pop(field, None)
    claim, path = _claim(spec.model.source)
    if claim:
        sent["model"]["source"] = f"file://{MODEL_MOUNT}/{path}".rstrip("/")
    return json.dumps(sent, sort_keys=True, separators=(",", ":"))


def _reuses(spec: DiffusionDeploymentSpec) -> bool:
    """Whether the agent looks at stored starts at all: the other modes have their placement from elsewhere."""
    return spec.residency.mode == "Auto"


def _claim(source: str) -> tuple[str, str]:
    """Claim and path of a pvc:// source; an empty claim for another scheme."""
    if not source.startswith(_PVC):
        return "", ""
    claim, _, path = source.removeprefix(_PVC).partition("/")
    return claim, path.strip("/")
