"""The status of a DiffusionDeployment: numbers, the placement in words, the newest rollback, the conditions."""

from __future__ import annotations

from pydantic import ValidationError

from stowplan_api.conditions import Condition, shorten
from stowplan_api.diffusion_deployment import DiffusionDeploymentStatus
from stowplan_api.quantity import for_people
from stowplan_api.residency_placement import ComponentStatus
from stowplan_operator.decide.rollbacks import counted, last_rollback, new_rollbacks
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.kinds import Json
from stowplan_operator.render.naming import recalibration, selector

_LINES = 32


def old_status(dd: Json) -> DiffusionDeploymentStatus:
    """The status as it stands. One that cannot be read (another version wrote it) is written anew."""
    try:
        return DiffusionDeploymentStatus.model_validate(dd.get("status") or {})
    except ValidationError:
        return DiffusionDeploymentStatus()


def status(
    dd: Json, old: DiffusionDeploymentStatus, rollout: Rollout, conditions: tuple[Condition, ...]
) -> DiffusionDeploymentStatus:
    """What the status should say. A pure function of its arguments: the same input gives an equal value."""
    shown = representative(rollout)
    new = new_rollbacks(old, rollout)
    report = shown.placement.status if shown is not None and shown.placement is not None else None
    ranks = report.ranks if report else ()
    return DiffusionDeploymentStatus(
        observed_generation=dd["metadata"]["generation"],
        replicas=len(rollout.live),
        ready_replicas=rollout.serving,
        updated_replicas=len(rollout.current),
        validated_replicas=rollout.validated,
        selector=",".join(f"{key}={value}" for key, value in selector(dd["metadata"]["name"]).items()),
        placement=tuple(shorten(_line(component)) for component in report.components[:_LINES]) if report else (),
        device=_device([rank.device for rank in ranks]),
        peak_bytes=max((rank.peak_bytes for rank in ranks), default=None),
        request_milliseconds=(
            report.validation.milliseconds if report and report.validation else old.request_milliseconds
        ),
        rollbacks=old.rollbacks + len(new),
        counted_rollbacks=counted(old, rollout, new),
        recalibrated=(recalibration(dd) if rollout.complete else "") or old.recalibrated,
        last_rollback=last_rollback(old.last_rollback, rollout, new),
        conditions=conditions,
    )


def representative(rollout: Rollout) -> JudgedPod | None:
    """The pod whose placement the status shows: a validated one, of this generation if there is one, first by name."""
    validated = [judged for judged in rollout.live if judged.gate.open]
    return min(validated, key=lambda judged: (not judged.current, judged.pod.name), default=None)


def _line(component: ComponentStatus) -> str:
    layers = f", {component.resident_layers}/{component.layers} layers resident" if component.layers else ""
    pinned = f", {for_people(component.pinned_bytes)} pinned" if component.pinned_bytes else ""
    lifetime = f", {component.lifetime}" if component.lifetime else ""
    on_device = f"{for_people(component.device_bytes)} on the device"
    return f"{component.name}: {component.mode}{layers}, {on_device}{pinned}{lifetime}"


def _device(names: list[str]) -> str | None:
    """One name for equal devices, all of them otherwise."""
    if not names:
        return None
    different = sorted(set(names))
    if len(different) > 1:
        return shorten(", ".join(different))
    return names[0] if len(names) == 1 else f"{len(names)} x {names[0]}"


def to_apply(dd: Json, wanted: Json) -> Json | None:
    """The manifest for server-side apply of the status; None when the object says all of it already."""
    if _by_type(wanted) == _by_type(dd.get("status") or {}):
        return None
    metadata = dd["metadata"]
    return {
        "apiVersion": dd["apiVersion"],
        "kind": dd["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
        "status": wanted,
    }


def _by_type(status: Json) -> Json:
    """The status with its conditions as a mapping: a list that is keyed by type has no order of its own."""
    return {**status, "conditions": {condition["type"]: condition for condition in status.get("conditions") or ()}}
