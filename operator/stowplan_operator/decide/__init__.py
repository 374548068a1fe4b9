"""Decides: from what was observed to what should be written. Pure: no client, and the time comes in.

A `Decision` that is empty means that the cluster is as it should be; deciding twice on the same snapshot gives the same
answer, and after its writes are observed the next decision is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from stowplan_operator.decide.children import ChildWrite, Settled, child_writes
from stowplan_operator.decide.conditions import conditions, takes_back
from stowplan_operator.decide.dropped import Dropped
from stowplan_operator.decide.events import gate_changed, readiness_changed, rolled_back
from stowplan_operator.decide.gate import GatePatch, gate_patch
from stowplan_operator.decide.placements import missing_placements
from stowplan_operator.decide.rollbacks import new_rollbacks
from stowplan_operator.decide.rollout import Rollout, judged_pods, rollout
from stowplan_operator.decide.starts import StartsToFetch, starts_to_fetch, voided_starts
from stowplan_operator.decide.status import old_status, status, to_apply
from stowplan_operator.decide.trouble import trouble
from stowplan_operator.kinds import Json
from stowplan_operator.observed import Snapshot
from stowplan_operator.settings import Settings

__all__ = ["ChildWrite", "Decision", "GateWrite", "Settled", "closings", "decide"]

NOTHING_DROPPED: Final = Dropped()


@dataclass(frozen=True)
class GateWrite:
    """A gate to set, and the Events to post once it is set."""

    patch: GatePatch
    validated_at: datetime | None
    """When the agent's Validated flipped, if this opens the gate: for the latency metric."""
    events: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What to write: gates first, for safety and speed; the status last, as the summary."""

    gates: tuple[GateWrite, ...] = ()
    children: tuple[ChildWrite, ...] = ()
    voided_starts: Json | None = None
    """Before the children: stored starts that no new pod may use."""
    placements: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()
    status: Json | None = None
    takes_back: bool = False
    """Whether the status no longer says of something that it is Ready or Available: it is not to wait."""
    rollbacks: tuple[str, ...] = ()
    """Reasons of the rollbacks that the status counts from now on."""
    fetch: StartsToFetch | None = None
    """No write, and nothing waits for it."""

    def __bool__(self) -> bool:
        return bool(self.gates or self.children or self.voided_starts or self.placements or self.events or self.status)


def decide(
    snapshot: Snapshot,
    now: datetime,
    settings: Settings,
    refusals: tuple[str, ...] = (),
    dropped: Dropped = NOTHING_DROPPED,
    settled: Settled | None = None,
) -> Decision:
    """What to write for one DiffusionDeployment. After its deletion began: nothing; garbage collection does the rest.

    ``refusals`` are the API server's answers to the last writes of children, one sentence each; ``dropped`` what an
    older CustomResourceDefinition takes from specs and statuses; ``settled`` saves time and changes no answer.
    """
    dd = snapshot.dd
    if dd is None or dd["metadata"].get("deletionTimestamp"):
        return Decision()
    rendered = (settled or Settled()).rendered(snapshot, dd, settings)
    spec = rendered.spec
    desired = spec.replicas if spec is not None else (dd.get("spec") or {}).get("replicas", 0)
    state = rollout(snapshot, rendered.template, desired)
    outdated = dropped.trouble()
    if outdated is not None:
        # What was rendered is of a spec that may lack something, so nothing is complete and no pod is replaced for it.
        state = replace(state, rendered=False)
    problem = rendered.invalid or outdated or trouble(state, refusals)
    generation: int = dd["metadata"]["generation"]
    old = old_status(dd)
    new_conditions = conditions(
        old.conditions, state, problem, paused=spec is not None and spec.paused, generation=generation, now=now
    )
    stories = (
        *rolled_back(old, state),
        *readiness_changed(old.conditions, new_conditions, problem is not None),
    )
    changes_pods = spec is not None and not spec.paused and outdated is None
    return Decision(
        gates=_gates(dd, state, now, settings),
        children=child_writes(dd, snapshot, rendered, now, settings) if changes_pods else (),
        voided_starts=voided_starts(dd, snapshot.starts) if changes_pods else None,
        placements=() if spec is None else missing_placements(snapshot, state, spec, generation),
        events=tuple(story.manifest(dd, now, settings.instance) for story in stories),
        status=to_apply(dd, dropped.kept(status(dd, old, state, new_conditions).to_json(exclude_none=True))),
        takes_back=takes_back(old.conditions, new_conditions),
        rollbacks=tuple(new.rollback.reason for new in new_rollbacks(old, state)),
        fetch=None if spec is None else starts_to_fetch(dd, snapshot.starts, state, spec, now),
    )


def closings(snapshot: Snapshot, now: datetime) -> Decision:
    """Only the gates that must not stand open, by the gate's own rule: for where the whole decision cannot be made."""
    shut = (judged for judged in judged_pods(snapshot, "") if not judged.gate.open)
    patches = (gate_patch(judged.pod, judged.gate, now) for judged in shut)
    return Decision(gates=tuple(GateWrite(patch, None) for patch in patches if patch is not None))


def _gates(dd: Json, state: Rollout, now: datetime, settings: Settings) -> tuple[GateWrite, ...]:
    writes = []
    for judged in state.pods:
        patch = gate_patch(judged.pod, judged.gate, now)
        if patch is None:
            continue
        stories = gate_changed(patch, judged)
        opens = judged.gate.open and bool(stories)
        validated_at = judged.placement.validated_at if opens and judged.placement is not None else None
        events = tuple(story.manifest(dd, now, settings.instance) for story in stories)
        writes.append(GateWrite(patch, validated_at, events))
    return tuple(writes)
