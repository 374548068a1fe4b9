"""Rollbacks: which ones the status does not know of yet, how many there were, and which was the newest.

A ResidencyPlacement keeps its pod's last ten and goes with its pod; times have whole seconds, clocks of nodes differ,
and two pods are seen in any order. So the status remembers for each pod how far its rollbacks are counted:
each is counted and told once, whatever order they are seen in, and the number never falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stowplan_api.diffusion_deployment import CountedRollback, DiffusionDeploymentStatus, RollbackSummary
from stowplan_api.residency_placement import Rollback
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.pod import parse_time

_MARKS: Final = 128
"""Pods whose rollbacks are remembered one by one; beyond it the newest ones are."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class NewRollback:
    """A rollback that the status does not know of yet."""

    time: datetime
    judged: JudgedPod
    rollback: Rollback


def new_rollbacks(old: DiffusionDeploymentStatus, rollout: Rollout) -> tuple[NewRollback, ...]:
    """Rollbacks that are not counted yet, oldest first; those of one second by their pods' names."""
    marks = {mark.pod: mark.time for mark in old.counted_rollbacks}
    floor = _floor(old)
    found = [
        NewRollback(time, judged, rollback)
        for judged in rollout.pods
        if judged.placement is not None
        for rollback in judged.placement.status.rollbacks
        if (time := parse_time(rollback.time)) is not None and time > (parse_time(marks.get(judged.pod.name)) or floor)
    ]
    return tuple(sorted(found, key=lambda new: (new.time, new.judged.pod.name)))


def counted(
    old: DiffusionDeploymentStatus, rollout: Rollout, new: tuple[NewRollback, ...]
) -> tuple[CountedRollback, ...]:
    """How far each existing pod is counted once the new ones are; sorted by name, so that equal states are equal."""
    times = {mark.pod: mark.time for mark in old.counted_rollbacks}
    times |= {one.judged.pod.name: one.rollback.time for one in new}
    existing = {judged.pod.name for judged in rollout.pods}
    marks = [CountedRollback(pod=pod, time=time) for pod, time in times.items() if pod in existing]
    newest = sorted(marks, key=lambda mark: (parse_time(mark.time) or _NEVER, mark.pod))[-_MARKS:]
    return tuple(sorted(newest, key=lambda mark: mark.pod))


def last_rollback(
    old: RollbackSummary | None, rollout: Rollout, new: tuple[NewRollback, ...]
) -> RollbackSummary | None:
    """The newest one ever seen: it outlives its pod.

    By its time only while that pod exists: of pods that are gone every one is older than what is new, whatever it said.
    """
    if not new:
        return old
    last, before = new[-1], parse_time(old.time) if old is not None else None
    there = old is not None and any(judged.pod.name == old.pod for judged in rollout.pods)
    if before is not None and before > last.time and there:
        return old
    return RollbackSummary(
        time=last.rollback.time,
        reason=last.rollback.reason,
        pod=last.judged.pod.name,
        from_=last.rollback.from_,
        to=last.rollback.to,
    )


def rollback_text(rollback: Rollback) -> str:
    """One rollback in one sentence, for an Event."""
    measured = f" (measured: {rollback.measured})" if rollback.measured else ""
    said = f": {rollback.message}" if rollback.message else ""
    return f"{rollback.reason}{said}{measured}; from {rollback.from_} back to {rollback.to}"


def _floor(old: DiffusionDeploymentStatus) -> datetime:
    """Up to when the rollbacks of a pod that has no mark are counted.

    With a full list of marks, up to the oldest of them. A status that has no such list is of a version that kept none:
    what is not newer than the last rollback was told then. Else nothing: a pod that has a rollback counted has a mark,
    and the time of the last one says nothing of it, for agents write times as their clocks, or their masters, please.
    """
    times = [time for mark in old.counted_rollbacks if (time := parse_time(mark.time)) is not None]
    if len(times) >= _MARKS:
        return min(times)
    if "counted_rollbacks" not in old.model_fields_set and old.last_rollback is not None:
        return parse_time(old.last_rollback.time) or _NEVER
    return _NEVER
