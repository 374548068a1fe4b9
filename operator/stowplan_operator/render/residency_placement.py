"""The ResidencyPlacement of one pod: created once, immutable, gone with the pod."""

from __future__ import annotations

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.kinds import POD, RESIDENCY_PLACEMENT, Json
from stowplan_operator.render.naming import labels


def residency_placement(
    deployment: str, spec: DiffusionDeploymentSpec, generation: int, namespace: str, pod: str, uid: str
) -> Json:
    """Named after its pod and owned by it; ``generation`` is the one that the pod's template came from."""
    limits: Json = {"memoryBytes": spec.resources.memory}
    if spec.resources.device_memory is not None:
        limits["deviceMemoryBytes"] = spec.resources.device_memory
    return {
        "apiVersion": RESIDENCY_PLACEMENT.api_version,
        "kind": RESIDENCY_PLACEMENT.kind,
        "metadata": {
            "name": pod,
            "namespace": namespace,
            "labels": labels(deployment),
            "ownerReferences": [
                {
                    "apiVersion": POD.api_version,
                    "kind": POD.kind,
                    "name": pod,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "deployment": deployment,
            "pod": {"name": pod, "uid": uid},
            "generation": generation,
            "limits": limits,
        },
    }
