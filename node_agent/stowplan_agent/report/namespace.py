"""A namespace for people: deployments, pods, phases, gates and memory. Pure: JSON of the API server in, views out.

Objects may be of another version, or half written, so each field is asked for, and one of another kind is as good as
none: a view of a broken object, which says so, is better than no view, for that is when people look.
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
        ready=_at(ready, "status", default="Unknown"),
        reason=_at(ready, "reason", default="not seen by the operator yet"),
        message="" if ready.get("status") == "True" else _at(ready, "message", default=""),
        validated=_at(raw, "status", "validatedReplicas", default=0),
        replicas=_at(raw, "spec", "replicas", default=_at(raw, "status", "replicas", default=1)),
        seconds=_seconds(_at(raw, "status", "requestMilliseconds", default=-1)),
        rollbacks=_at(raw, "status", "rollbacks", default=0),
        pods=pods,
    )


def _pod(pod: Json, placement: Json, now: datetime) -> PodView:
    began = _began(placement)
    phase = _at(placement, "status", "phase", default="")
    ranks = _each(placement, "ranks")
    return PodView(
        name=_key(pod)[1],
        phase=phase or _at(pod, "status", "phase", default="Unknown"),
        gate={"True": "open", "": "-"}.get(_at(condition(pod, READINESS_GATE), "status", default=""), "closed"),
        since=None if began is None else max((now - began).total_seconds(), 0.0),
        device=_at(ranks[0], "device", default="") if ranks else "",
        memory=_memory(placement, ranks[0]) if ranks else None,
        seconds=_seconds(_at(placement, "status", "validation", "milliseconds", default=-1)),
        rollbacks=len(_each(placement, "rollbacks")),
        message=_trouble(pod, placement) or _unreadable(placement),
    )


def _memory(placement: Json, rank: Json) -> Memory:
    parts = _each(placement, "components")
    return Memory(
        components=tuple((_at(part, "name", default="?"), _at(part, "deviceBytes", default=0)) for part in parts),
        peak=_at(rank, "peakBytes", default=0),
        reserve=_at(rank, "reserveBytes", default=0),
        capacity=_at(rank, "capacityBytes", default=0),
    )


def _trouble(pod: Json, placement: Json) -> str:
    """The most telling sentence there is: of the agent, else of the container, else of the scheduler."""
    if _at(placement, "status", "phase", default="") == "RolledBack":
        taken_back = condition(placement, "RolledBack")
        return f"rolled back ({taken_back.get('reason', '?')}): {taken_back.get('message', '')}"
    ready = condition(placement, "Ready")
    if _at(placement, "status", "phase", default="") in BROKEN or ready.get("reason") == "DeadlineExceeded":
        return str(ready.get("message", ""))
    for container in _each(pod, "containerStatuses"):
        waiting = _at(container, "state", "waiting", default={})
        died = _at(container, "lastState", "terminated", default={})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            last = f" after {died['reason']} (exit code {died.get('exitCode', '?')})" if died.get("reason") else ""
            return f"{waiting['reason']}{last}: {waiting.get('message', '')}".rstrip(": ")
    scheduled = condition(pod, "PodScheduled")
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def _unreadable(placement: Json) -> str:
    """One sentence on what this version cannot read of a status; empty where it can."""
    status = _at(placement, "status", default={})
    odd = [name for name in LISTS if len(_each(placement, name)) != _length(status.get(name))]
    odd += ["phases.startedAt"] if _began(placement) is None and _running(placement).get("startedAt") else []
    return f"this version cannot read {', '.join(odd)} of its status" if odd else ""


def condition(raw: Json, type_: str) -> Json:
    """A condition of an object; empty where there is none."""
    return next((one for one in _each(raw, "conditions") if one.get("type") == type_), {})


def _key(raw: Json) -> tuple[str, str]:
    return _at(raw, "metadata", "namespace", default=""), _at(raw, "metadata", "name", default="?")


def _at(raw: Any, *path: str, default: Any) -> Any:
    """What is there, where it is of the kind that ``default`` is; else that."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    kind = Mapping if isinstance(default, Mapping) else type(default)
    return raw if isinstance(raw, kind) and not isinstance(raw, bool) else default


def _each(raw: Json, name: str) -> list[Json]:
    """The objects in a list of a status."""
    return [one for one in _at(raw, "status", name, default=[]) if isinstance(one, Mapping)]


def _length(found: Any) -> int:
    """Of a list that may be left out; -1 of anything else."""
    return 0 if found is None else len(found) if isinstance(found, list) else -1


def _running(placement: Json) -> Json:
    """The phase that has begun and not ended; empty where there is none."""
    phases = _each(placement, "phases")
    return phases[-1] if phases and "milliseconds" not in phases[-1] else {}


def _began(placement: Json) -> datetime | None:
    try:
        began = datetime.fromisoformat(_running(placement).get("startedAt", ""))
    except (TypeError, ValueError):
        return None
    return began if began.tzinfo else began.replace(tzinfo=UTC)


def _seconds(milliseconds: int) -> str:
    return "" if milliseconds < 0 else seconds_for_people(milliseconds)
