"""Events: the story that ``kubectl describe`` tells, each of its sentences at most once.

An Event is made at a transition only, and its name is a hash of what it says and of whom, so that a repeated reconcile,
a retry or a restarted operator posts the same name again and the API server answers that it exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from stowplan_api.conditions import Condition, find, shorten
from stowplan_api.contract import DeploymentCondition
from stowplan_api.diffusion_deployment import DiffusionDeploymentStatus
from stowplan_api.quantity import for_people
from stowplan_operator.decide.gate import GatePatch, GateReason
from stowplan_operator.decide.rollbacks import new_rollbacks, rollback_text
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.kinds import EVENT, POD, Json
from stowplan_operator.pod import PodView
from stowplan_operator.render.naming import digest

REPORTING_CONTROLLER: Final = "stowplan.dev/operator"
NOTE_LIMIT: Final = 1000
"""Bytes. events.k8s.io/v1 refuses a note above 1,024 characters."""


class EventReason(StrEnum):
    """Reasons of the Events that are not a condition's own reason."""

    CREATED = "Created"
    ROLLING_OUT = "RollingOut"
    PLACEMENT_VALIDATED = "PlacementValidated"
    PLACEMENT_ROLLED_BACK = "PlacementRolledBack"
    GATE_OPENED = "GateOpened"
    GATE_CLOSED = "GateClosed"
    READY = "Ready"


@dataclass(frozen=True)
class Story:
    """One Event before it is a manifest."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str
    key: tuple[str, ...]
    """What makes it this Event and no other, beside reason and deployment."""
    pod: PodView | None = None

    def manifest(self, dd: Json, now: datetime, instance: str) -> Json:
        """The events.k8s.io/v1 object, named after what it says."""
        metadata = dd["metadata"]
        name = f"{metadata['name']}.{digest([metadata['uid'], self.reason, *self.key])}"
        body: Json = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": REPORTING_CONTROLLER,
            "reportingInstance": instance,
            "type": self.type,
            "reason": self.reason,
            "action": self.action,
            "note": shorten(self.note, NOTE_LIMIT),
            "regarding": {
                "apiVersion": dd["apiVersion"],
                "kind": dd["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
        }
        if self.pod is not None:
            body["related"] = {
                "apiVersion": POD.api_version,
                "kind": POD.kind,
                "name": self.pod.name,
                "namespace": self.pod.namespace,
                "uid": self.pod.uid,
            }
        return body


def created(child: Json) -> Story:
    """A child that was missing is there."""
    kind, name = child["kind"], child["metadata"]["name"]
    return Story("Normal", EventReason.CREATED, "Create", f"created {kind} {name}", (kind, name))


def rolling_out(generation: int, template: str) -> Story:
    """The Deployment got a new pod template."""
    note = f"rolling out generation {generation}"
    return Story("Normal", EventReason.ROLLING_OUT, "Roll out", note, (template, str(generation)))


def gate_changed(patch: GatePatch, judged: JudgedPod) -> tuple[Story, ...]:
    """A gate that opened, with what was measured, or one that closed again; nothing for its first False."""
    pod, placement = patch.pod, judged.placement
    was_open = pod.gate is not None and pod.gate.status == "True"
    server = pod.server
    boot = str(server.started_at) if server is not None else ""
    key = (pod.uid, placement.boot_id if placement is not None else "", boot)
    if patch.gate.open and not was_open:
        return (
            Story("Normal", EventReason.PLACEMENT_VALIDATED, "Validate", _measured(judged), key, pod),
            Story("Normal", EventReason.GATE_OPENED, "Open gate", f"pod {pod.name}: {patch.gate.message}", key, pod),
        )
    if was_open and not patch.gate.open:
        note = f"pod {pod.name}: {patch.gate.message}"
        return (Story("Warning", EventReason.GATE_CLOSED, "Close gate", note, (*key, patch.gate.reason), pod),)
    return ()


def rolled_back(old: DiffusionDeploymentStatus, rollout: Rollout) -> tuple[Story, ...]:
    """One Warning for each rollback that the status does not know of yet."""
    return tuple(
        Story(
            "Warning",
            EventReason.PLACEMENT_ROLLED_BACK,
            "Roll back",
            f"pod {new.judged.pod.name}: {rollback_text(new.rollback)}",
            (new.judged.pod.uid, new.rollback.time, new.rollback.reason),
            new.judged.pod,
        )
        for new in new_rollbacks(old, rollout)
    )


def readiness_changed(old: tuple[Condition, ...], new: tuple[Condition, ...], trouble: bool) -> tuple[Story, ...]:
    """Ready became True, or something else now stands in the way of it."""
    before, after = find(old, DeploymentCondition.READY), find(new, DeploymentCondition.READY)
    if after is None or before is None or (before.status, before.reason) == (after.status, after.reason):
        return ()
    key = (str(after.observed_generation), after.reason)
    if after.status == "True":
        return (Story("Normal", EventReason.READY, "Roll out", after.message, key),)
    if trouble:
        return (Story("Warning", after.reason, "Roll out", after.message, key),)
    return ()


def _measured(judged: JudgedPod) -> str:
    """What was proven of a pod's placement, in one line with units."""
    if judged.placement is None:
        return f"pod {judged.pod.name} validated its placement"
    report = judged.placement.status
    parts = [f"pod {judged.pod.name} validated its placement"]
    if report.resident:
        parts.append(f"{report.resident} layers resident")
    for rank in report.ranks[:1]:
        parts.append(f"peak {for_people(rank.peak_bytes)} of {for_people(rank.capacity_bytes)} on {rank.device}")
    if report.validation is not None:
        # What the plan predicted says nothing of the placement that took its place.
        planned = report.plan if judged.gate.reason != GateReason.PLACEMENT_ROLLED_BACK else None
        in_force = planned is not None and planned.kept is None
        predicted = f" ({planned.predicted_milliseconds} ms predicted)" if planned and in_force else ""
        parts.append(f"{report.validation.milliseconds} ms a request{predicted}")
    return ", ".join(parts)
