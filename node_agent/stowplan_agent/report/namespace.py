"""A namespace for people: deployments, pods, phases, gates and memory. Pure: JSON of the API server in, views out.

Objects may be of another version, or half written: a view of a broken object, which says so, is better than no view,
for that is when people look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stowplan_agent.report.objects import Json, at, condition, each, key, length
from stowplan_api.contract import LABEL_DEPLOYMENT, READINESS_GATE
from stowplan_api.status import seconds_for_people

STEPS: Final = ("Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply", "Validate")
"""The phases of a start that measures, in order: what is still to come."""
BROKEN: Final = ("Failed",)
LISTS: Final = ("phases", "ranks", "components", "conditions", "rollbacks")
"""Of objects, in the status of a placement."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One device, in bytes: weights by component at rest, the peak of a request, what is kept free, and all of it."""

    components: tuple[tuple[str, int], ...]
    peak: int
    reserve: int
    capacity: int


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a deployment."""

    name: str
    phase: str
    gate: str
    """open, closed, or - where the pod has none yet."""
    since: float | None
    """Seconds since the phase began."""
    device: str
    memory: Memory | None
    seconds: str
    rollbacks: int
    message: str
    """What stops it or what went wrong; empty where all is well."""


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """One DiffusionDeployment and its pods."""

    namespace: str
    name: str
    model: str
    ready: str
    reason: str
    message: str
    validated: int
    replicas: int
    seconds: str
    rollbacks: int
    pods: tuple[PodView, ...]

    @property
    def well(self) -> bool:
        """Whether all that was asked for serves."""
        return self.ready == "True"


def deployments_of(
    deployments: Iterable[Json], placements: Iterable[Json], pods: Iterable[Json], now: datetime
) -> tuple[DeploymentView, ...]:
    """Views of everything, by namespace and name. ``now`` tells how long a phase has been running."""
    told = {key(one): one for one in placements}
    whose: dict[tuple[str, str], list[PodView]] = {}
    for pod in sorted(pods, key=key):
        owner = (key(pod)[0], at(pod, "metadata", "labels", LABEL_DEPLOYMENT, default=""))
        whose.setdefault(owner, []).append(_pod(pod, told.get(key(pod), {}), now))
    return tuple(_deployment(one, tuple(whose.get(key(one), ()))) for one in sorted(deployments, key=key))


def _deployment(raw: Json, pods: tuple[PodView, ...]) -> DeploymentView:
    ready = condition(raw, "Ready")
    return DeploymentView(
        namespace=key(raw)[0],
        name=key(raw)[1],
        model=at(raw, "spec", "model", "source", default="?"),
        ready=at(ready, "status", default="Unknown"),
        reason=at(ready, "reason", default="not seen by the operator yet"),
        message="" if ready.get("status") == "True" else at(ready, "message", default=""),
        validated=at(raw, "status", "validatedReplicas", default=0),
        replicas=at(raw, "spec", "replicas", default=at(raw, "status", "replicas", default=1)),
        seconds=_seconds(at(raw, "status", "requestMilliseconds", default=-1)),
        rollbacks=at(raw, "status", "rollbacks", default=0),
        pods=pods,
    )


def _pod(pod: Json, placement: Json, now: datetime) -> PodView:
    began = _began(placement)
    phase = at(placement, "status", "phase", default="")
    ranks = each(placement, "ranks")
    return PodView(
        name=key(pod)[1],
        phase=phase or at(pod, "status", "phase", default="Unknown"),
        gate={"True": "open", "": "-"}.get(at(condition(pod, READINESS_GATE), "status", default=""), "closed"),
        since=None if began is None else max((now - began).total_seconds(), 0.0),
        device=at(ranks[0], "device", default="") if ranks else "",
        memory=_memory(placement, ranks[0]) if ranks else None,
        seconds=_seconds(at(placement, "status", "validation", "milliseconds", default=-1)),
        rollbacks=len(each(placement, "rollbacks")),
        message=_trouble(pod, placement) or _unreadable(placement),
    )


def _memory(placement: Json, rank: Json) -> Memory:
    parts = each(placement, "components")
    return Memory(
        components=tuple((at(part, "name", default="?"), at(part, "deviceBytes", default=0)) for part in parts),
        peak=at(rank, "peakBytes", default=0),
        reserve=at(rank, "reserveBytes", default=0),
        capacity=at(rank, "capacityBytes", default=0),
    )


def _trouble(pod: Json, placement: Json) -> str:
    """The most telling sentence there is: of the agent, else of the container, else of the scheduler."""
    if at(placement, "status", "phase", default="") == "RolledBack":
        taken_back = condition(placement, "RolledBack")
        return f"rolled back ({at(taken_back, 'reason', default='?')}): {at(taken_back, 'message', default='')}"
    ready = condition(placement, "Ready")
    if at(placement, "status", "phase", default="") in BROKEN or ready.get("reason") == "DeadlineExceeded":
        return str(at(ready, "message", default=""))
    for container in each(pod, "containerStatuses"):
        waits = at(container, "state", "waiting", "reason", default="")
        if waits not in ("", "ContainerCreating", "PodInitializing"):
            said = at(container, "state", "waiting", "message", default="")
            return f"{waits}{_death(container)}: {said}".rstrip(": ")
    scheduled = condition(pod, "PodScheduled")
    return str(at(scheduled, "message", default="")) if scheduled.get("status") == "False" else ""


def _death(container: Json) -> str:
    """How it ended the last time, if it did."""
    why = at(container, "lastState", "terminated", "reason", default="")
    code = at(container, "lastState", "terminated", "exitCode", default=-1)
    return f" after {why} (exit code {'?' if code < 0 else code})" if why else ""


def _unreadable(placement: Json) -> str:
    """One sentence on what this version cannot read of a status; empty where it can."""
    status = at(placement, "status", default={})
    if not status and placement.get("status") not in (None, {}):
        return "this version cannot read its status, which is no object"
    odd = [name for name in LISTS if len(each(placement, name)) != length(status.get(name))]
    odd += ["phases.startedAt"] if _began(placement) is None and _running(placement).get("startedAt") else []
    return f"this version cannot read {', '.join(odd)} of its status" if odd else ""


def _running(placement: Json) -> Json:
    """The phase that has begun and not ended; empty where there is none."""
    phases = each(placement, "phases")
    return phases[-1] if phases and "milliseconds" not in phases[-1] else {}


def _began(placement: Json) -> datetime | None:
    try:
        began = datetime.fromisoformat(_running(placement).get("startedAt", ""))
    except (TypeError, ValueError):
        return None
    return began if began.tzinfo else began.replace(tzinfo=UTC)


def _seconds(milliseconds: int) -> str:
    return "" if milliseconds < 0 else seconds_for_people(milliseconds)
