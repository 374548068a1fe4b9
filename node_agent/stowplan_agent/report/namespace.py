"""A namespace for people: deployments, pods, phases, gates and memory. Pure: JSON of the API server in, views out.

Objects may be of another version, or half written, so each field is asked for and none is relied on: a view of a broken
object is better than none, for that is when people look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from stowplan_api.contract import LABEL_DEPLOYMENT, READINESS_GATE
from stowplan_api.status import seconds_for_people

Json = Mapping[str, Any]
STEPS: Final = ("Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply", "Validate")
"""The phases of a start that measures, in order: what is still to come."""
BROKEN: Final = ("Failed",)


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
    told = {_key(one): one for one in placements}
    whose: dict[tuple[str, str], list[PodView]] = {}
    for pod in sorted(pods, key=_key):
        owner = (_key(pod)[0], _at(pod, "metadata", "labels", LABEL_DEPLOYMENT, default=""))
        whose.setdefault(owner, []).append(_pod(pod, told.get(_key(pod), {}), now))
    return tuple(_deployment(one, tuple(whose.get(_key(one), ()))) for one in sorted(deployments, key=_key))


def _deployment(raw: Json, pods: tuple[PodView, ...]) -> DeploymentView:
    ready = condition(raw, "Ready")
    return DeploymentView(
        namespace=_key(raw)[0],
        name=_key(raw)[1],
        model=_at(raw, "spec", "model", "source", default="?"),
        ready=ready.get("status", "Unknown"),
        reason=ready.get("reason", "not seen by the operator yet"),
        message="" if ready.get("status") == "True" else ready.get("message", ""),
        validated=_at(raw, "status", "validatedReplicas", default=0),
        replicas=_at(raw, "spec", "replicas", default=_at(raw, "status", "replicas", default=1)),
        seconds=_seconds(_at(raw, "status", "requestMilliseconds", default=None)),
        rollbacks=_at(raw, "status", "rollbacks", default=0),
        pods=pods,
    )


def _pod(pod: Json, placement: Json, now: datetime) -> PodView:
    phases = _at(placement, "status", "phases", default=())
    began = phases[-1].get("startedAt") if phases and "milliseconds" not in phases[-1] else None
    phase = _at(placement, "status", "phase", default="")
    ranks = _at(placement, "status", "ranks", default=())
    return PodView(
        name=_key(pod)[1],
        phase=phase or _at(pod, "status", "phase", default="Unknown"),
        gate={"True": "open", None: "-"}.get(condition(pod, READINESS_GATE).get("status"), "closed"),
        since=None if began is None else max((now - _time(began)).total_seconds(), 0.0),
        device=ranks[0].get("device", "") if ranks else "",
        memory=_memory(placement, ranks[0]) if ranks else None,
        seconds=_seconds(_at(placement, "status", "validation", "milliseconds", default=None)),
        rollbacks=len(_at(placement, "status", "rollbacks", default=())),
        message=_trouble(pod, placement),
    )


def _memory(placement: Json, rank: Json) -> Memory:
    parts = _at(placement, "status", "components", default=())
    return Memory(
        components=tuple((part.get("name", "?"), part.get("deviceBytes", 0)) for part in parts),
        peak=rank.get("peakBytes", 0),
        reserve=rank.get("reserveBytes", 0),
        capacity=rank.get("capacityBytes", 0),
    )


def _trouble(pod: Json, placement: Json) -> str:
    """The most telling sentence there is: of the agent, else of the container, else of the scheduler."""
    if _at(placement, "status", "phase", default="") == "RolledBack":
        taken_back = condition(placement, "RolledBack")
        return f"rolled back ({taken_back.get('reason', '?')}): {taken_back.get('message', '')}"
    ready = condition(placement, "Ready")
    if _at(placement, "status", "phase", default="") in BROKEN or ready.get("reason") == "DeadlineExceeded":
        return str(ready.get("message", ""))
    for container in _at(pod, "status", "containerStatuses", default=()):
        waiting = _at(container, "state", "waiting", default={})
        died = _at(container, "lastState", "terminated", default={})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            last = f" after {died['reason']} (exit code {died.get('exitCode', '?')})" if died.get("reason") else ""
            return f"{waiting['reason']}{last}: {waiting.get('message', '')}".rstrip(": ")
    scheduled = condition(pod, "PodScheduled")
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def condition(raw: Json, type_: str) -> Json:
    """A condition of an object; empty where there is none."""
    found = _at(raw, "status", "conditions", default=())
    return next((one for one in found if one.get("type") == type_), {})


def _key(raw: Json) -> tuple[str, str]:
    return _at(raw, "metadata", "namespace", default=""), _at(raw, "metadata", "name", default="?")


def _at(raw: Any, *path: str, default: Any) -> Any:
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return default if raw is None else raw


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _seconds(milliseconds: int | None) -> str:
    return "" if milliseconds is None else seconds_for_people(milliseconds)
