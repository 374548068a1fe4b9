"""The one error that a user should read: from the agent, a container, the scheduler, or the API server's refusal.

A condition that only says "not ready" sends people to five other objects; this finds what those would have said. Texts
that change by themselves (back-off seconds) are left out, because every change would be a write.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_api.conditions import Condition
from stowplan_api.contract import ROLLBACK_FAILED_EXIT, DeploymentReason, PlacementCondition, PlacementReason
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import ContainerView, PodView

_PROGRESSING = frozenset({"", "ContainerCreating", "PodInitializing"})
_ROLLBACK_FAILED = (
    "rolling back a placement failed, so its process ended and the container starts anew; "
    "it serves nothing until a placement validates"
)
_OUT_OF_MEMORY_HINT = "; raise spec.resources.memory"
_AFFINITY = "node affinity"
"""Part of the scheduler's words for a node that a pod may not go to."""
_SHARED_HINT = " (a node that shares its devices matches only where spec.resources.deviceMemory is stated)"


@dataclass(frozen=True)
class Trouble:
    """What stands in the way, and whether waiting could help."""

    reason: DeploymentReason
    message: str
    final: bool = False
    """The agent gave up: nothing will validate until the spec, the model or the node changes."""


def trouble(rollout: Rollout, refusals: tuple[str, ...]) -> Trouble | None:
    """The most telling error of this generation, or None when nothing is known to be wrong.

    ``refusals`` are the API server's answers to our own writes of children.
    """
    if refusals:
        return Trouble(DeploymentReason.CREATE_FAILED, "; ".join(refusals))
    waiting = [judged for judged in rollout.current if not judged.gate.open]
    found = [problem for judged in waiting if (problem := _of_pod(judged)) is not None]
    if found:
        # What the agent says comes first: a container that ended because of it says less.
        return next((problem for problem in found if problem.final), found[0])
    if rollout.failed_create:
        return Trouble(DeploymentReason.CREATE_FAILED, rollout.failed_create)
    over = [_finished(judged.pod) for judged in rollout.pods if judged.current and judged.pod.phase == "Failed"]
    if over and not rollout.complete:
        return over[-1]
    unready = [judged for judged in rollout.current if judged.gate.open and not judged.pod.ready]
    return next((problem for judged in unready if (problem := _of_containers(judged.pod)) is not None), None)


def nothing_validates(rollout: Rollout) -> bool:
    """Whether every pod of this generation has given up: none is validated and none still tries."""
    return bool(rollout.current) and all(
        not judged.gate.open and judged.placement is not None and judged.placement.status.phase == "Failed"
        for judged in rollout.current
    )


def _of_pod(judged: JudgedPod) -> Trouble | None:
    pod, placement = judged.pod, judged.placement
    late = placement.condition(PlacementCondition.VALIDATED) if placement is not None else None
    if late is not None and late.reason == PlacementReason.DEADLINE_EXCEEDED and late.status == "False":
        # It may hang in a driver for ever, so this is told before it ends, if it ever does.
        return Trouble(DeploymentReason.PLACEMENT_FAILED, f"{late.message} (pod {pod.name})")
    if _rollback_failed(pod):
        # Said from the exit code, and the same through every boot that follows: the agent's last word is of a process
        # that has ended, and the next one's are of a start that may end alike.
        return Trouble(DeploymentReason.PLACEMENT_FAILED, f"pod {pod.name}: {_ROLLBACK_FAILED}")
    if placement is not None and placement.status.phase == "Failed":
        return _of_agent(pod, placement)
    if pod.unschedulable:
        hint = _SHARED_HINT if _AFFINITY in pod.unschedulable else ""
        return Trouble(DeploymentReason.UNSCHEDULABLE, f"pod {pod.name}: {pod.unschedulable}{hint}")
    return _of_containers(pod)


def _rollback_failed(pod: PodView) -> bool:
    server = pod.server
    return server is not None and server.last_exit_code == ROLLBACK_FAILED_EXIT


def _of_agent(pod: PodView, placement: PlacementView) -> Trouble:
    """The agent's own sentence, unchanged, and which pod said it."""
    cause = _cause(placement)
    infeasible = cause is not None and cause.reason == PlacementReason.INFEASIBLE
    message = cause.message if cause is not None and cause.message else "the agent gave up without a message"
    return Trouble(
        DeploymentReason.PLACEMENT_INFEASIBLE if infeasible else DeploymentReason.PLACEMENT_FAILED,
        f"{message} (pod {pod.name})",
        final=True,
    )


def _cause(placement: PlacementView) -> Condition | None:
    """The condition that says why nothing validates: the first one in the order of the phases that failed."""
    waiting = (PlacementReason.STARTING, PlacementReason.STATIC_MODE, PlacementReason.RESIDENCY_DISABLED)
    found = [
        condition
        for type_ in (PlacementCondition.CALIBRATED, PlacementCondition.APPLIED, PlacementCondition.VALIDATED)
        if (condition := placement.condition(type_)) is not None
        and condition.status == "False"
        and condition.reason not in waiting
    ]
    infeasible = [condition for condition in found if condition.reason == PlacementReason.INFEASIBLE]
    return next(iter([*infeasible, *found]), None)


def _of_containers(pod: PodView) -> Trouble | None:
    for container in pod.containers:
        text = _of_container(container)
        if text:
            return Trouble(DeploymentReason.POD_FAILED, f"pod {pod.name}: container {container.name}: {text}")
    return None


def _of_container(container: ContainerView) -> str:
    last = _last_exit(container)
    if container.waiting_reason == "CrashLoopBackOff":
        return f"CrashLoopBackOff{last and ', last exit ' + last}"
    if container.waiting_reason not in _PROGRESSING:
        return f"{container.waiting_reason}: {container.waiting_message}".rstrip(": ")
    failed = bool(last) and (container.last_exit_code != 0 or container.started_at is None)
    if failed and (container.restarts or container.started_at is None):
        times = {0: "ended", 1: "restarted once"}.get(container.restarts, f"restarted {container.restarts} times")
        return f"{times}, last exit {last}"
    return ""


def _last_exit(container: ContainerView) -> str:
    if not container.last_exit_reason:
        return ""
    hint = _OUT_OF_MEMORY_HINT if container.last_exit_reason == "OOMKilled" else ""
    said = f": {container.last_exit_message.strip()}" if container.last_exit_message.strip() else ""
    return f"{container.last_exit_reason} (code {container.last_exit_code}){said}{hint}"


def _finished(pod: PodView) -> Trouble:
    said = ": ".join(part for part in (pod.reason, pod.message) if part) or "its containers ended"
    return Trouble(DeploymentReason.POD_FAILED, f"pod {pod.name} failed: {said}")
