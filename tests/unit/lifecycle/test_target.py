"""Which placement a start is to serve: is the plan worth going to, and what is said where it is not gone to. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planned_records import MIB, RECORD
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.target import Target, choose_target, not_below, nothing_fits, target_of
from stowplan_agent.planning import cost, seed_placement, solve, with_device_memory
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Prefer, Residency
from stowplan_api.placement import Placement

SEED = seed_placement(RECORD.components, ranks=1)


def planned() -> Placement:
    placement = solve(RECORD).placement
    assert placement is not None
    return placement


def test_a_plan_that_is_faster_is_gone_to() -> None:
    target = choose_target(RECORD, Residency())
    assert cost(RECORD, target.placement).seconds < cost(RECORD, SEED).seconds
    assert not_below(RECORD, target, SEED, Prefer()) == target


def test_a_plan_that_is_no_faster_than_the_seed_placement_is_not_gone_to() -> None:
    """Never below the seed placement: moving for nothing is a risk for nothing."""
    target = choose_target(RECORD, Residency())
    as_seed = replace(target, placement=SEED)
    kept = not_below(RECORD, as_seed, target.placement, Prefer())
    assert kept.placement == target.placement
    held, planned = cost(RECORD, target.placement).seconds, cost(RECORD, SEED).seconds
    assert kept.kept == f"the seed placement is kept: it takes {held:.6g} s a request, and the plan {planned:.6g} s"
    assert not_below(RECORD, target, target.placement, Prefer()) == target  # it is the plan, and nothing is kept


def test_a_user_who_prefers_it_slower_gets_it_slower() -> None:
    slower = replace(choose_target(RECORD, Residency()), placement=SEED)
    assert not_below(RECORD, slower, planned(), Prefer(never_keep=("vae",))) == slower
    own = Target(SEED, PlacementReason.PINNED)
    assert not_below(RECORD, own, planned(), Prefer()) == own


@pytest.mark.parametrize(
    ("residency", "disabled", "extrapolated", "reason", "words"),
    [
        (Residency(), True, False, PlacementReason.RESIDENCY_DISABLED, "the seed placement is served"),
        (Residency(mode="Static"), False, False, PlacementReason.STATIC_MODE, "the seed placement is served"),
        (Residency(mode="Static"), True, True, PlacementReason.RESIDENCY_DISABLED, "the seed placement is served"),
        (Residency(), False, True, PlacementReason.EXTRAPOLATED, "the seed placement is served if it proves itself"),
    ],
)
def test_where_nothing_is_planned_the_seed_placement_is_kept_and_why(
    residency: Residency, disabled: bool, extrapolated: bool, reason: PlacementReason, words: str
) -> None:
    record = RECORD.model_copy(update={"extrapolated": extrapolated})
    target = target_of(record, SEED, residency, disabled=disabled)
    assert (target.placement, target.plan, target.reason) == (SEED, None, reason)
    assert target.kept.startswith(words)


def test_otherwise_it_is_the_plan() -> None:
    target = target_of(RECORD, SEED, Residency(), disabled=False)
    assert target == choose_target(RECORD, Residency())
    assert target.plan is not None and target.kept == ""


def test_a_seed_placement_that_failed_says_what_would_fit_or_that_the_shape_is_too_large() -> None:
    failure = StartError(PlacementReason.OUT_OF_MEMORY, "it ran out of memory")
    small = nothing_fits(with_device_memory(RECORD, 8 * MIB), failure)
    assert small.reason is PlacementReason.INFEASIBLE
    assert str(small).startswith("no placement fits: ")
    assert str(small).endswith("; it ran out of memory")
    large = nothing_fits(RECORD, failure)
    assert large.reason is PlacementReason.OUT_OF_MEMORY
    assert str(large) == "it ran out of memory; even with everything streamed, so declare a smaller shape"
