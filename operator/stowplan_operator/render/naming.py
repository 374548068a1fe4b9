"""Names, labels and owners of what the operator creates.

Children get these labels and no others: a GitOps tool's tracking labels and annotations on a DiffusionDeployment must
never reach them, or the tool would think it owns them (and prune them).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from stowplan_api import API_VERSION
from stowplan_api.contract import ANNOTATION_RECALIBRATE, LABEL_DEPLOYMENT
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, Json, Kind

HASH_DIGITS: Final = 10
LONGEST_RECALIBRATION: Final = 128
"""Characters of a recalibrate annotation that are repeated as they are."""


def selector(deployment: str) -> dict[str, str]:
    """Labels that select the pods of one DiffusionDeployment. A Deployment's selector is immutable: never change it."""
    return {LABEL_DEPLOYMENT: deployment}


def labels(deployment: str) -> dict[str, str]:
    """Labels of every child."""
    return {
        **selector(deployment),
        "app.kubernetes.io/name": "stowplan-server",
        "app.kubernetes.io/instance": deployment,
        "app.kubernetes.io/managed-by": "stowplan-operator",
    }


def owner(dd: Json) -> Json:
    """The owner reference to a DiffusionDeployment: garbage collection does the deleting, no finalizer is needed."""
    return {
        "apiVersion": API_VERSION,
        "kind": DIFFUSION_DEPLOYMENT.kind,
        "name": dd["metadata"]["name"],
        "uid": dd["metadata"]["uid"],
        "controller": True,
        # True would need update on the owner's finalizers where OwnerReferencesPermissionEnforcement is on.
        "blockOwnerDeletion": False,
    }


def child(kind: Kind, dd: Json, name: str | None = None) -> Json:
    """The head of a child's manifest; its name is the deployment's own unless another is given."""
    deployment = dd["metadata"]["name"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name or deployment,
            "namespace": dd["metadata"]["namespace"],
            "labels": labels(deployment),
            "ownerReferences": [owner(dd)],
        },
    }


def starts_name(deployment: str) -> str:
    """Name of the ConfigMap that holds the stored starts of a deployment's pods."""
    return f"{deployment}-starts"


def recalibration(dd: Json) -> str:
    """The value of the recalibrate annotation that pods are made for; empty for a deployment that never had one.

    What a user takes away after it was carried out stays in force by its echo in the status: a value less restarts
    nothing. One that is too long to repeat everywhere is known by its digest.
    """
    asked: str = (dd["metadata"].get("annotations") or {}).get(ANNOTATION_RECALIBRATE) or ""
    if not asked:
        asked = (dd.get("status") or {}).get("recalibrated") or ""
    return asked if len(asked) <= LONGEST_RECALIBRATION else digest(asked)


def measured(dd: Json) -> int | None:
    """Milliseconds of one request at the default shape, as validated last; None where nothing was yet."""
    found = (dd.get("status") or {}).get("requestMilliseconds")
    return found if isinstance(found, int) else None


def digest(value: Any) -> str:
    """A short hash of any JSON value, the same for equal values and in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
