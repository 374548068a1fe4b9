"""Which placement this start is to serve: the user's own, the planner's, or the seed placement."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.facts import infeasible_text
from stowplan_agent.lifecycle.preferences import with_preferences
from stowplan_agent.planning import cost, solve
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Prefer, Residency
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord


@dataclass(frozen=True)
class Target:
    """A placement to apply. ``plan`` is None where the planner did not choose it."""

    placement: Placement
    reason: PlacementReason
    """Of the condition Applied, once it is in force."""
    plan: Plan | None = None
    note: str = ""
    """What the user asked for and does not get, if anything."""
    kept: str = ""
    """Why the seed placement is kept, where it is: in place of the plan, or with none made."""


def target_of(record: CalibrationRecord, seed: Placement, residency: Residency, *, disabled: bool) -> Target:
    """The placement that a start which is in the seed placement is to serve. Pure.

    ``disabled``: by the kill switch. Raises `StartError` where the user's placement does not fit, or none does.
    """
    if disabled:
        return Target(seed, PlacementReason.RESIDENCY_DISABLED, kept="the seed placement is served")
    if residency.mode == "Static":
        return Target(seed, PlacementReason.STATIC_MODE, kept="the seed placement is served")
    if record.extrapolated and residency.mode == "Auto":
        # What was not measured is no ground to move anything; the seed placement may fit, and proves it or not.
        kept = "the seed placement is served if it proves itself: the declared shape ran out of memory when it was "
        return Target(seed, PlacementReason.EXTRAPOLATED, kept=kept + "measured")
    return not_below(record, choose_target(record, residency), seed, residency.prefer)


def choose_target(record: CalibrationRecord, residency: Residency) -> Target:
    """The placement of modes Auto and Pinned. Raises `StartError` where it does not fit, or none does."""
    if residency.mode == "Pinned":
        assert residency.placement is not None, "the CRD's rules ask for it"
        return _pinned(record, Placement(components=residency.placement.components))
    return _planned(record, residency.prefer)


def nothing_fits(record: CalibrationRecord, failure: StartError) -> StartError:
    """The seed placement needs least of all, and failed so at the declared shapes: say what would fit."""
    plan = solve(record)
    if plan.placement is None:
        return StartError(PlacementReason.INFEASIBLE, f"{infeasible_text(plan)}; {failure}")
    return StartError(failure.reason, f"{failure}; even with everything streamed, so declare a smaller shape")


def not_below(record: CalibrationRecord, target: Target, seed: Placement, prefer: Prefer) -> Target:
    """The target, or the seed placement in its stead where a plan would serve no faster than that.

    A user who prefers components elsewhere gets them there all the same.
    """
    if target.plan is None or prefer.keep or prefer.never_keep:
        return target
    held, planned = cost(record, seed), cost(record, target.placement)
    if planned.seconds < held.seconds or not held.feasible or target.placement == seed:
        return target
    kept = f"the seed placement is kept: it takes {held.seconds:.6g} s a request, and the plan {planned.seconds:.6g} s"
    return replace(target, placement=seed, kept=kept)


def _pinned(record: CalibrationRecord, placement: Placement) -> Target:
    problems = cost(record, placement).violations
    if problems:
        wrong = any(problem.constraint == "entry" for problem in problems)
        reason = PlacementReason.SPEC_INVALID if wrong else PlacementReason.INFEASIBLE
        raise StartError(reason, "residency.placement: " + "; ".join(problem.message for problem in problems[:3]))
    return Target(placement, PlacementReason.PINNED)


def _planned(record: CalibrationRecord, prefer: Prefer) -> Target:
    """What is never to be kept binds; what is to be kept is kept wherever that fits."""
    plan, note = solve(with_preferences(record, prefer, keep=True)), ""
    if plan.placement is None and prefer.keep:
        first = plan.shortfalls[0].message if plan.shortfalls else "no placement does so"
        note = f"residency.prefer.keep ({', '.join(prefer.keep)}) does not fit: {first}"
        plan = solve(with_preferences(record, prefer, keep=False))
    if plan.placement is None:
        raise StartError(PlacementReason.INFEASIBLE, infeasible_text(plan))
    return Target(with_whole_pins(record, plan.placement), PlacementReason.PLAN_APPLIED, plan, note)


def with_whole_pins(record: CalibrationRecord, placement: Placement) -> Placement:
    """The placement with every Offload component that is pinned in part pinned as a whole, where that fits.

    The engine locks whole units, and the planner saves locked bytes to the last one that does not matter.
    """
    for entry in placement.components:
        total = record.component(entry.name).total_bytes()
        if entry.pinned_bytes is None or not 0 < max(entry.pinned_bytes) < total:
            continue
        whole = entry.model_copy(update={"pinned_bytes": (total,) * len(entry.pinned_bytes)})
        others = (whole if other is entry else other for other in placement.components)
        rounded = placement.model_copy(update={"components": tuple(others)})
        if cost(record, rounded).feasible:
            placement = rounded
    return placement
