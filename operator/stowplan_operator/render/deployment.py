"""The Deployment that keeps the pods."""

from __future__ import annotations

from stowplan_api.contract import ANNOTATION_GENERATION
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.kinds import DEPLOYMENT, Json
from stowplan_operator.render.deadlines import progress_deadline_seconds
from stowplan_operator.render.naming import child, measured, recalibration, selector
from stowplan_operator.render.pod_template import pod_template
from stowplan_operator.settings import Settings


def deployment(dd: Json, spec: DiffusionDeploymentSpec, settings: Settings, standing: str = "") -> Json:
    """Replicas come from the DiffusionDeployment, where a user or an autoscaler writes them through its scale.

    ``standing``: see `pod_template`.
    """
    name = dd["metadata"]["name"]
    manifest = child(DEPLOYMENT, dd)
    manifest["metadata"]["annotations"] = {ANNOTATION_GENERATION: str(dd["metadata"]["generation"])}
    manifest["spec"] = {
        "replicas": spec.replicas,
        "selector": {"matchLabels": selector(name)},
        "strategy": _strategy(spec),
        "progressDeadlineSeconds": progress_deadline_seconds(spec, measured(dd)),
        "revisionHistoryLimit": 2,
        "template": pod_template(name, spec, settings, recalibration(dd), standing),
    }
    return manifest


def _strategy(spec: DiffusionDeploymentSpec) -> Json:
    """Recreate by default: a GPU that the old pod holds is often the only one, and surge would wait for it forever."""
    if spec.rollout.strategy == "Recreate":
        return {"type": "Recreate"}
    update = spec.rollout.rolling_update
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": update.max_surge, "maxUnavailable": update.max_unavailable},
    }
