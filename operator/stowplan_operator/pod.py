"""A pod as the operator sees it: the few facts that decisions rest on, read once from the raw object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from stowplan_api.contract import LABEL_TEMPLATE, READINESS_GATE, SERVER_CONTAINER
from stowplan_operator.kinds import Json


@dataclass(frozen=True)
class ContainerView:
    """One container's state."""

    name: str
    started_at: datetime | None
    """Start of the process that runs now; None when none runs."""
    restarts: int
    waiting_reason: str
    waiting_message: str
    last_exit_reason: str
    """Why it ended last, such as OOMKilled or Error; empty when it never ended."""
    last_exit_code: int
    last_exit_message: str
    previous_start: datetime | None = None
    """Start of the process before the one that runs, as far as the kubelet remembers it."""


@dataclass(frozen=True)
class GateCondition:
    """The readiness gate as it stands on the pod."""

    status: str
    reason: str
    message: str
    last_transition_time: str


@dataclass(frozen=True)
class PodView:
    """One pod of a DiffusionDeployment."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    """The version of the object that all of this was read from."""
    template: str
    """Hash of the pod template it was made from."""
    controller: str
    """Kind and name of what made it, such as ``ReplicaSet/wan22-5d8f7c``; empty for a bare pod."""
    phase: str
    reason: str
    message: str
    terminating: bool
    ready: bool
    ip: str
    """Empty until the kubelet reports one."""
    unschedulable: str
    """The scheduler's message while no node fits; empty otherwise."""
    gate: GateCondition | None
    containers: tuple[ContainerView, ...]

    @property
    def finished(self) -> bool:
        """Whether it will never run again."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def live(self) -> bool:
        """Whether it counts as a replica."""
        return not self.terminating and not self.finished

    @property
    def server(self) -> ContainerView | None:
        """The serving container, once the kubelet has reported it."""
        return next((container for container in self.containers if container.name == SERVER_CONTAINER), None)


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 time with a zone, in UTC, or None where there is none to read.

    An agent may write any time there is; one that UTC has no year for is none.
    """
    try:
        time = datetime.fromisoformat(text) if text else None
        return time.astimezone(UTC) if time is not None and time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def view(raw: Json) -> PodView:
    """Read a pod; what the kubelet has not written yet is empty."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    gate = conditions.get(READINESS_GATE)
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return PodView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        template=(metadata.get("labels") or {}).get(LABEL_TEMPLATE, ""),
        controller=next(
            (f"{ref['kind']}/{ref['name']}" for ref in metadata.get("ownerReferences") or () if ref.get("controller")),
            "",
        ),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        terminating=bool(metadata.get("deletionTimestamp")),
        ready=conditions.get("Ready", {}).get("status") == "True",
        ip=status.get("podIP", ""),
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else "",
        gate=None if gate is None else _gate(gate),
        containers=tuple(_container(entry) for entry in statuses),
    )


def _gate(condition: Json) -> GateCondition:
    return GateCondition(
        status=condition.get("status", "Unknown"),
        reason=condition.get("reason", ""),
        message=condition.get("message", ""),
        last_transition_time=condition.get("lastTransitionTime") or "",
    )


def _container(entry: Json) -> ContainerView:
    state, last = entry.get("state") or {}, entry.get("lastState") or {}
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or last.get("terminated") or {}
    return ContainerView(
        name=entry["name"],
        started_at=parse_time((state.get("running") or {}).get("startedAt")),
        restarts=entry.get("restartCount", 0),
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        last_exit_reason=ended.get("reason", ""),
        last_exit_code=ended.get("exitCode", 0),
        last_exit_message=ended.get("message", ""),
        previous_start=parse_time((last.get("terminated") or {}).get("startedAt")),
    )
