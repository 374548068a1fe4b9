"""Decides: from what was observed to what should be written. Pure: no client, and the time comes in.

A `Decision` that is empty means that the cluster is as it should be; deciding twice on the same snapshot gives the same
answer, and after its writes are observed the next decision is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from stowplan_api.contract import DeploymentReason, Manager
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.decide.conditions import conditions
from stowplan_operator.decide.dropped import Dropped
from stowplan_operator.decide.events import Story, created, gate_changed, readiness_changed, rolled_back, rolling_out
from stowplan_operator.decide.gate import GatePatch, gate_patch
from stowplan_operator.decide.placements import missing_placements
from stowplan_operator.decide.rollout import Rollout, judged_pods, rollout, template_of
from stowplan_operator.decide.starts import StartsToFetch, starts_to_fetch, voided_starts
from stowplan_operator.decide.status import old_status, status, to_apply
from stowplan_operator.decide.trouble import Trouble, trouble
from stowplan_operator.differences import would_change
from stowplan_operator.kinds import DEPLOYMENT, Json, kind_of
from stowplan_operator.observed import Snapshot
from stowplan_operator.render import SpecError, children, read_spec
from stowplan_operator.settings import Settings

__all__ = ["ChildWrite", "Decision", "GateWrite", "closings", "decide"]

NOTHING_DROPPED: Final = Dropped()


@dataclass(frozen=True)
class GateWrite:
    """A gate to set, and the Events to post once it is set."""

    patch: GatePatch
    validated_at: datetime | None
    """When the agent's Validated flipped, if this opens the gate: for the latency metric."""
    events: tuple[Json, ...] = ()


@dataclass(frozen=True)
class ChildWrite:
    """A child to apply, and the Events to post once it is there."""

    manifest: Json
    existing: Json | None
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
) -> Decision:
    """What to write for one DiffusionDeployment. After its deletion began: nothing; garbage collection does the rest.

    ``refusals`` are the API server's answers to the last writes of children, one sentence each; ``dropped`` what an
    older CustomResourceDefinition takes from specs and statuses.
    """
    dd = snapshot.dd
    if dd is None or dd["metadata"].get("deletionTimestamp"):
        return Decision()
    spec, wanted, invalid = _render(dd, settings)
    pods = next((child for child in wanted if child["kind"] == DEPLOYMENT.kind), None)
    desired = spec.replicas if spec is not None else (dd.get("spec") or {}).get("replicas", 0)
    state = rollout(snapshot, pods, desired)
    outdated = dropped.trouble()
    if outdated is not None:
        # What was rendered is of a spec that may lack something, so nothing is complete and no pod is replaced for it.
        state = replace(state, rendered=False)
    problem = invalid or outdated or trouble(state, refusals)
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
        children=_children(dd, snapshot, wanted, now, settings) if changes_pods else (),
        voided_starts=voided_starts(dd, snapshot.starts) if changes_pods else None,
        placements=() if spec is None else missing_placements(snapshot, state, spec, generation),
        events=tuple(story.manifest(dd, now, settings.instance) for story in stories),
        status=to_apply(dd, dropped.kept(status(dd, old, state, new_conditions).to_json(exclude_none=True))),
        fetch=None if spec is None else starts_to_fetch(dd, snapshot.starts, state, spec, now),
    )


def closings(snapshot: Snapshot, now: datetime) -> Decision:
    """Only the gates that must not stand open, by the gate's own rule: for where the whole decision cannot be made."""
    shut = (judged for judged in judged_pods(snapshot, "") if not judged.gate.open)
    patches = (gate_patch(judged.pod, judged.gate, now) for judged in shut)
    return Decision(gates=tuple(GateWrite(patch, None) for patch in patches if patch is not None))


def _render(dd: Json, settings: Settings) -> tuple[DiffusionDeploymentSpec | None, tuple[Json, ...], Trouble | None]:
    """The spec and its children, or what is wrong with it. A bad spec changes no pod and closes no gate."""
    try:
        spec = read_spec(dd)
        return spec, children(dd, spec, settings), None
    except SpecError as error:
        return None, (), Trouble(DeploymentReason.SPEC_INVALID, str(error), final=True)


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


def _children(
    dd: Json, snapshot: Snapshot, wanted: tuple[Json, ...], now: datetime, settings: Settings
) -> tuple[ChildWrite, ...]:
    writes = []
    for manifest in wanted:
        existing = snapshot.child(kind_of(manifest), manifest["metadata"]["name"])
        if not would_change(manifest, existing, Manager.WORKLOAD):
            continue
        stories: tuple[Story, ...] = ()
        if existing is None:
            stories = (created(manifest),)
        elif manifest["kind"] == DEPLOYMENT.kind and template_of(manifest) != template_of(existing):
            stories = (rolling_out(dd["metadata"]["generation"], template_of(manifest)),)
        events = tuple(story.manifest(dd, now, settings.instance) for story in stories)
        writes.append(ChildWrite(manifest, existing, events))
    return tuple(writes)
