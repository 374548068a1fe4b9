"""The status of a DiffusionDeployment: numbers, the placement in words, the newest rollback, the conditions."""

from __future__ import annotations

from pydantic import ValidationError

from stowplan_api.conditions import Condition, shorten
from stowplan_api.diffusion_deployment import DiffusionDeploymentStatus, RollbackSummary
from stowplan_api.quantity import for_people
from stowplan_api.residency_placement import ComponentStatus, Rollback
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.kinds import Json
from stowplan_operator.pod import parse_time
from stowplan_operator.render.naming import selector

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
        request_milliseconds=report.validation.milliseconds if report and report.validation else None,
        rollbacks=sum(len(judged.placement.status.rollbacks) for judged in rollout.pods if judged.placement),
        last_rollback=_last_rollback(old.last_rollback, rollout),
        conditions=conditions,
    )


def representative(rollout: Rollout) -> JudgedPod | None:
    """The pod whose placement the status shows: a validated one, of this generation if there is one, first by name."""
    validated = [judged for judged in rollout.live if judged.gate.open]
    return min(validated, key=lambda judged: (not judged.current, judged.pod.name), default=None)


def new_rollbacks(old: RollbackSummary | None, rollout: Rollout) -> tuple[tuple[JudgedPod, Rollback], ...]:
    """Rollbacks that are newer than the one in the status, oldest first; those of one second by their pods' names."""
    last = parse_time(old.time) if old is not None else None
    since = (last, old.pod) if old is not None and last is not None else None
    found = [
        (time, judged, rollback)
        for judged in rollout.pods
        if judged.placement is not None
        for rollback in judged.placement.status.rollbacks
        if (time := parse_time(rollback.time)) is not None and (since is None or (time, judged.pod.name) > since)
    ]
    found.sort(key=lambda entry: (entry[0], entry[1].pod.name))
    return tuple((judged, rollback) for _, judged, rollback in found)


def _last_rollback(old: RollbackSummary | None, rollout: Rollout) -> RollbackSummary | None:
    """The newest one ever seen: it outlives its pod."""
    new = new_rollbacks(old, rollout)
    if not new:
        return old
    judged, rollback = new[-1]
    return RollbackSummary(
        time=rollback.time, reason=rollback.reason, pod=judged.pod.name, from_=rollback.from_, to=rollback.to
    )


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


def to_apply(dd: Json, new: DiffusionDeploymentStatus) -> Json | None:
    """The manifest for server-side apply of the status; None when the object says all of it already."""
    wanted = new.to_json(exclude_none=True)
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


def rollback_text(rollback: Rollback) -> str:
    """One rollback in one sentence, for an Event."""
    measured = f" (measured: {rollback.measured})" if rollback.measured else ""
    said = f": {rollback.message}" if rollback.message else ""
    return f"{rollback.reason}{said}{measured}; from {rollback.from_} back to {rollback.to}"
