"""The gate: True only for what was validated in this pod, by this boot, for this pod's own generation.

Everything else, and no answer, is False. The table of `judge` is the protocol of the readiness gate; nothing else in
the operator decides whether a pod may serve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from stowplan_api.conditions import Condition, is_true, shorten, timestamp
from stowplan_api.contract import READINESS_GATE, PlacementCondition
from stowplan_operator.decide.opening import Opening, Whose, last_opening, remembered, whose, with_opening
from stowplan_operator.kinds import Json
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import ContainerView, PodView


class GateReason(StrEnum):
    """Reasons of the pod condition."""

    PLACEMENT_VALIDATED = "PlacementValidated"
    """True: the plan is in force and proven."""
    PLACEMENT_ROLLED_BACK = "PlacementRolledBack"
    """True: the plan was taken back and the last good placement is proven."""
    PLACEMENT_MISSING = "PlacementMissing"
    """False: no ResidencyPlacement of this pod's uid exists yet."""
    AGENT_SILENT = "AgentSilent"
    """False: the agent has not written a status yet."""
    NOT_VALIDATED = "NotValidated"
    """False: this boot has not validated a placement."""
    CONTAINER_NOT_RUNNING = "ContainerNotRunning"
    """False: no server process runs, so nothing that was validated is in force."""
    EARLIER_BOOT = "EarlierBoot"
    """False: the validation is, or may be, of a process that has ended."""
    OTHER_GENERATION = "OtherGeneration"
    """False: the validation is of another generation of the spec."""


@dataclass(frozen=True)
class Gate:
    """What the gate of one pod should say."""

    open: bool
    reason: GateReason
    message: str


@dataclass(frozen=True)
class GatePatch:
    """A write of one pod's gate. It holds for this uid only: a pod replaced under the same name is not touched."""

    pod: PodView
    gate: Gate
    body: Json
    """Strategic merge patch of pods/status."""


def judge(pod: PodView, placement: PlacementView | None) -> Gate:
    """What the gate should say, from the pod and the ResidencyPlacement of its name."""
    last = last_opening(pod)
    gate, opening = _judge(pod, placement, last)
    return replace(gate, message=with_opening(gate.message, opening))


def _judge(pod: PodView, placement: PlacementView | None, last: Opening | None) -> tuple[Gate, Opening | None]:
    """The gate, and what it was opened for last once it says so."""
    if placement is None or placement.terminating or placement.pod_uid != pod.uid:
        return Gate(False, GateReason.PLACEMENT_MISSING, f"no ResidencyPlacement for pod uid {pod.uid}"), last
    server = pod.server
    if server is None or server.started_at is None:
        return Gate(False, GateReason.CONTAINER_NOT_RUNNING, "the server container is not running"), last
    validated, agent = placement.condition(PlacementCondition.VALIDATED), placement.started_at
    if validated is None or agent is None:
        return Gate(False, GateReason.AGENT_SILENT, "the agent has not reported yet"), last
    said_by = whose(server, server.started_at, placement, agent, last)
    gate = _of_report(placement, validated) if said_by is Whose.THIS else _of_another(server, placement, said_by)
    return gate, remembered(gate.open, placement, server.started_at, said_by, last)


def _of_another(server: ContainerView, placement: PlacementView, said_by: Whose) -> Gate:
    """The newest report is not, or not surely, of the process that runs."""
    assert placement.started_at is not None and server.started_at is not None
    started, runs_since = timestamp(placement.started_at), timestamp(server.started_at)
    if said_by is Whose.EARLIER or placement.earlier_boots is None:
        text = f"the newest report is of a process that started at {started}; this one started at {runs_since}"
    else:
        text = (
            f"the newest report may be of an earlier process (boots before it: {placement.earlier_boots}, restarts of "
            f"the container: {server.restarts}); its next report will tell, and if none comes, delete the pod"
        )
    return Gate(False, GateReason.EARLIER_BOOT, text)


def _of_report(placement: PlacementView, validated: Condition) -> Gate:
    """What the process that runs says."""
    if validated.observed_generation != placement.generation:
        return Gate(
            False,
            GateReason.OTHER_GENERATION,
            f"validated for generation {validated.observed_generation}; this pod is of {placement.generation}",
        )
    if validated.status != "True":
        return Gate(False, GateReason.NOT_VALIDATED, shorten(validated.message) or "no placement is validated")
    if is_true(placement.status.conditions, PlacementCondition.ROLLED_BACK):
        return Gate(True, GateReason.PLACEMENT_ROLLED_BACK, "the last good placement is validated in this boot")
    return Gate(True, GateReason.PLACEMENT_VALIDATED, "the placement in force is validated in this boot")


def gate_patch(pod: PodView, gate: Gate, now: datetime) -> GatePatch | None:
    """The write that makes the pod's condition say what the gate says; None when it does already, or the pod is over.

    A strategic merge patch by condition type, never a JSON merge patch: that one would erase the kubelet's conditions.
    An opening holds for the very version of the pod that was judged: a container that was reported as restarted in the
    meantime refuses it (409). A closing always holds.
    """
    status = "True" if gate.open else "False"
    old = pod.gate
    if pod.terminating or pod.finished:
        return None
    if old is not None and (old.status, old.reason, old.message) == (status, gate.reason, gate.message):
        return None
    since = old.last_transition_time if old is not None and old.status == status else ""
    condition = {
        "type": READINESS_GATE,
        "status": status,
        "reason": gate.reason.value,
        "message": gate.message,
        "lastTransitionTime": since or timestamp(now),
    }
    guard = {"uid": pod.uid, **({"resourceVersion": pod.resource_version} if gate.open else {})}
    return GatePatch(pod, gate, {"metadata": guard, "status": {"conditions": [condition]}})
