"""The conditions of a DiffusionDeployment, all from one `Rollout`, so that they can never disagree.

Ready is the strict one: this generation, fully rolled out, every pod validated. Stalled and Reconciling exist only when
True, as kstatus (Argo CD, Flux) expects.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from stowplan_api.conditions import Condition, Status, drop_condition, find, is_true, set_condition
from stowplan_api.contract import DeploymentCondition, DeploymentReason
from stowplan_operator.decide.gate import GateReason
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.decide.trouble import Trouble, nothing_validates

_DEGRADING = frozenset(
    {DeploymentReason.PLACEMENT_INFEASIBLE, DeploymentReason.PLACEMENT_FAILED, DeploymentReason.POD_FAILED}
)


@dataclass(frozen=True)
class Verdict:
    """What one condition says."""

    status: Status
    reason: DeploymentReason
    message: str


def conditions(
    old: tuple[Condition, ...],
    rollout: Rollout,
    problem: Trouble | None,
    *,
    paused: bool,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions now; the same tuple when nothing differs. The very first ones say that nothing is known yet."""
    if find(old, DeploymentCondition.READY) is None:
        first = Verdict("Unknown", DeploymentReason.RECONCILING, "seen for the first time")
        verdicts = {DeploymentCondition.READY: first}
    else:
        verdicts = _verdicts(rollout, problem, paused)
    new = old
    for type_, verdict in verdicts.items():
        new = set_condition(new, type_, verdict.status, verdict.reason, verdict.message, generation=generation, now=now)
    for type_ in (DeploymentCondition.STALLED, DeploymentCondition.RECONCILING):
        if type_ not in verdicts and find(new, type_) is not None:
            new = drop_condition(new, type_)
    return new


def takes_back(old: tuple[Condition, ...], new: tuple[Condition, ...]) -> bool:
    """Whether Ready or Available was True and is not any more."""
    promises = (DeploymentCondition.READY, DeploymentCondition.AVAILABLE)
    return any(is_true(old, promise) and not is_true(new, promise) for promise in promises)


def _verdicts(rollout: Rollout, problem: Trouble | None, paused: bool) -> dict[DeploymentCondition, Verdict]:
    ready = readiness(rollout, problem, paused)
    verdicts = {
        DeploymentCondition.READY: ready,
        DeploymentCondition.AVAILABLE: _available(rollout),
        DeploymentCondition.PLACEMENT_VALIDATED: _validated(rollout, ready),
        DeploymentCondition.DEGRADED: _degraded(rollout, problem),
    }
    if rollout.complete:
        verdicts[DeploymentCondition.PROGRESSING] = Verdict("False", ready.reason, ready.message)
    elif _stalled(rollout, problem):
        verdicts[DeploymentCondition.PROGRESSING] = Verdict("False", ready.reason, ready.message)
        verdicts[DeploymentCondition.STALLED] = Verdict("True", ready.reason, ready.message)
    elif ready.reason in (DeploymentReason.PAUSED, DeploymentReason.PROGRESS_DEADLINE_EXCEEDED):
        verdicts[DeploymentCondition.PROGRESSING] = Verdict("False", ready.reason, ready.message)
    else:
        under_way = Verdict("True", DeploymentReason.ROLLING_OUT, ready.message)
        verdicts[DeploymentCondition.PROGRESSING] = under_way
        verdicts[DeploymentCondition.RECONCILING] = Verdict("True", DeploymentReason.RECONCILING, ready.message)
    return verdicts


def readiness(rollout: Rollout, problem: Trouble | None, paused: bool) -> Verdict:
    """Ready, its reason, and the one message that a user reads first."""
    if rollout.complete:
        if rollout.desired == 0:
            return Verdict("True", DeploymentReason.SCALED_TO_ZERO, "scaled to zero: no pod is wanted")
        return Verdict("True", DeploymentReason.ROLLED_OUT, _count(rollout))
    if problem is not None:
        return Verdict("False", problem.reason, problem.message)
    if paused and not rollout.rendered:
        return Verdict("False", DeploymentReason.PAUSED, "paused: the pods are kept as they are; set paused to false")
    if rollout.past_deadline:
        return Verdict("False", DeploymentReason.PROGRESS_DEADLINE_EXCEEDED, _late(rollout))
    return _waiting(rollout)


def _waiting(rollout: Rollout) -> Verdict:
    """What an undisturbed rollout waits for."""
    closed = [judged for judged in rollout.current if not judged.gate.open]
    if not rollout.current:
        return Verdict("False", DeploymentReason.WAITING_FOR_PODS, f"no pod yet; {_count(rollout)}")
    if not closed:
        return Verdict("False", DeploymentReason.ROLLING_OUT, f"the last pods are being replaced; {_count(rollout)}")
    measuring = [judged for judged in closed if judged.gate.reason is GateReason.NOT_VALIDATED]
    if measuring:
        return Verdict("False", DeploymentReason.CALIBRATING, f"{_phase(measuring[0])}; {_count(rollout)}")
    starting = closed[0]
    text = f"pod {starting.pod.name}: {starting.gate.message}; {_count(rollout)}"
    return Verdict("False", DeploymentReason.WAITING_FOR_PODS, text)


def _available(rollout: Rollout) -> Verdict:
    if rollout.serving:
        pods = "1 validated pod serves" if rollout.serving == 1 else f"{rollout.serving} validated pods serve"
        return Verdict("True", DeploymentReason.POD_AVAILABLE, pods)
    return Verdict("False", DeploymentReason.NO_POD_AVAILABLE, "no validated pod serves")


def _validated(rollout: Rollout, ready: Verdict) -> Verdict:
    if rollout.desired == 0:
        return Verdict("Unknown", DeploymentReason.SCALED_TO_ZERO, "no pod is wanted")
    proven = sum(judged.gate.open for judged in rollout.current)
    if proven == len(rollout.current) == rollout.desired:
        return Verdict("True", DeploymentReason.VALIDATED, _count(rollout))
    return Verdict("False", ready.reason, _count(rollout))


def _degraded(rollout: Rollout, problem: Trouble | None) -> Verdict:
    rolled_back = [
        judged for judged in rollout.live if judged.gate.open and judged.gate.reason is GateReason.PLACEMENT_ROLLED_BACK
    ]
    if rolled_back:
        return Verdict("True", DeploymentReason.PLACEMENT_ROLLED_BACK, _rolled_back(rolled_back))
    if problem is not None and problem.reason in _DEGRADING:
        return Verdict("True", problem.reason, problem.message)
    return Verdict("False", DeploymentReason.HEALTHY, "")


def _stalled(rollout: Rollout, problem: Trouble | None) -> bool:
    """Only when nothing of this generation validates, and waiting alone will not help."""
    if problem is not None and problem.reason in (DeploymentReason.SPEC_INVALID, DeploymentReason.DEFINITION_OUTDATED):
        return True
    if problem is not None and problem.final:
        return nothing_validates(rollout)
    if problem is not None or not rollout.past_deadline:
        return False
    # An agent that reports holds its phases to deadlines that it learnt on its card, and says when one is over.
    return not any(judged.gate.open or judged.gate.reason is GateReason.NOT_VALIDATED for judged in rollout.current)


def _count(rollout: Rollout) -> str:
    proven = sum(judged.gate.open for judged in rollout.current)
    return f"{proven} of {rollout.desired} pods validated"


def _late(rollout: Rollout) -> str:
    waiting = [judged for judged in rollout.current if not judged.serves]
    which = f"; {_phase(waiting[0])}" if waiting else ""
    return f"the rollout's deadline has passed; {_count(rollout)}{which}"


def _phase(judged: JudgedPod) -> str:
    phase = judged.placement.status.phase if judged.placement is not None else "Pending"
    return f"pod {judged.pod.name} is in phase {phase}"


def _rolled_back(pods: list[JudgedPod]) -> str:
    first = pods[0]
    rollbacks = first.placement.status.rollbacks if first.placement is not None else ()
    cause = f": {rollbacks[-1].reason}: {rollbacks[-1].message}".rstrip(": ") if rollbacks else ""
    which = "1 pod serves" if len(pods) == 1 else f"{len(pods)} pods serve"
    return f"{which} the last good placement instead of the plan (pod {first.pod.name}{cause})"
