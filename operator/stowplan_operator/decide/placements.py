"""Which ResidencyPlacements to create: one for each pod that has none of its own uid."""

from __future__ import annotations

from stowplan_api.contract import ANNOTATION_GENERATION
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.decide.rollout import Rollout, template_of
from stowplan_operator.kinds import DEPLOYMENT, Json
from stowplan_operator.observed import Snapshot
from stowplan_operator.render import residency_placement


def missing_placements(
    snapshot: Snapshot, rollout: Rollout, spec: DiffusionDeploymentSpec, generation: int
) -> tuple[Json, ...]:
    """The manifests to create. While the object of an earlier pod of the same name still exists, its end is awaited."""
    return tuple(
        residency_placement(
            snapshot.key.name,
            spec,
            generation if judged.current else _older_generation(snapshot, judged.pod.template, generation),
            snapshot.key.namespace,
            judged.pod.name,
            judged.pod.uid,
        )
        for judged in rollout.live
        if judged.pod.name not in snapshot.placements
    )


def _older_generation(snapshot: Snapshot, template: str, generation: int) -> int:
    """The generation a pod of an older template was rendered from, as far as anything still says so.

    The Deployment's annotation says it for the template that the Deployment holds now. A template older than that can
    only be of an earlier generation, and which one no longer matters: such a pod is on its way out.
    """
    existing = snapshot.child(DEPLOYMENT, snapshot.key.name)
    recorded = ((existing or {}).get("metadata", {}).get("annotations") or {}).get(ANNOTATION_GENERATION, "")
    newest = int(recorded) if recorded.isdecimal() else generation - 1
    if existing is not None and template_of(existing) == template:
        return max(1, newest)
    return max(1, newest - 1)
