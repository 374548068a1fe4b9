"""Does a stored placement suit this pod? Values in, a reason or nothing out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planned_records import MIB, RECORD
from stowplan_agent.calibration import Machine
from stowplan_agent.lifecycle.warm_start import StepReference
from stowplan_agent.lifecycle.warm_start.suitability import (
    misfit,
    on_machine,
    other_parts,
    other_requests,
    other_step,
)
from stowplan_agent.planning import seed_placement, solve
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import Component, Group

MACHINE = Machine(
    node="node",
    device="card",
    capacity_bytes=32 * MIB,
    outside_bytes=MIB,
    reserve_bytes=MIB,
    pinnable_bytes=64 * MIB,
    host_bytes=64 * MIB,
)
SEED = seed_placement(RECORD.components, ranks=1)


def planned() -> Placement:
    placement = solve(RECORD).placement
    assert placement is not None
    return placement


def test_the_same_machine_is_the_same_record() -> None:
    assert on_machine(RECORD, MACHINE) == RECORD
    assert misfit(on_machine(RECORD, MACHINE), planned()) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capacity_bytes": 12 * MIB}, "bytes more than the 12 MiB there are"),
        ({"outside_bytes": 24 * MIB}, "bytes more than the 32 MiB there are"),
        ({"reserve_bytes": 24 * MIB}, "a reserve of 24 MiB"),
    ],
)
def test_what_this_machine_lacks_is_said_in_numbers(change: dict[str, Any], words: str) -> None:
    problem = misfit(on_machine(RECORD, replace(MACHINE, **change)), planned())
    assert problem is not None
    assert words in problem


def test_less_host_memory_than_then_is_a_misfit_of_what_streams() -> None:
    assert misfit(on_machine(RECORD, replace(MACHINE, host_bytes=MIB, pinnable_bytes=MIB)), SEED) is not None


def test_what_libraries_take_beside_the_allocator_they_will_take_again() -> None:
    """Before they have run, less is in use outside than a request will find."""
    fresh = on_machine(RECORD, replace(MACHINE, outside_bytes=0))
    assert fresh.ranks[0].outside_bytes == RECORD.ranks[0].outside_bytes


@pytest.mark.parametrize("field", [None, "width", "height", "frames", "steps"])
def test_a_record_of_other_requests_than_the_declared_ones_is_another_pods(field: str | None) -> None:
    """By its workloads requests are admitted: one that is larger would let in what was never measured."""
    known = {"name", "width", "height", "frames", "steps"}
    declared = [Shape.model_validate(one.model_dump(include=known)) for one in RECORD.workloads]
    assert other_requests(RECORD, declared) is None
    if field is not None:
        declared[0] = declared[0].model_copy(update={field: getattr(declared[0], field) * 2})
        assert "are declared" in (other_requests(RECORD, declared) or "")


def changed(**fields: Any) -> tuple[Component, ...]:
    first, *rest = RECORD.components
    return (first.model_copy(update=fields), *rest)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (RECORD.components, None),
        (tuple(reversed(RECORD.components)), None),
        (RECORD.components[:1], "component vae is in one of the two only"),
        ((*RECORD.components, Component(name="upscaler", loose_bytes=1)), "component upscaler is in one of the two"),
        (changed(loose_bytes=1), "component denoiser has 8388609 bytes in 4 layers, and had 9437184 in 4"),
        (changed(groups=(Group(name="blocks", layer_bytes=(2 * MIB,) * 3),)), "in 3 layers, and had 9437184 in 4"),
        (changed(groups=(Group(name="others", layer_bytes=(2 * MIB,) * 4),)), "component denoiser has "),
    ],
)
def test_other_components_than_then(found: tuple[Component, ...], words: str | None) -> None:
    problem = other_parts(found, RECORD.components)
    assert (problem is None) == (words is None)
    if words is not None:
        assert problem is not None and words in problem


@pytest.mark.parametrize(
    ("shape", "steps", "words"),
    [
        ("clip", 1, None),
        ("still", 1, "it was proven with 1 steps of shape still, and clip needs most memory"),
        ("clip", 4, "it was proven with 4 steps of shape clip, and clip needs most memory"),
    ],
)
def test_the_step_that_was_stored_is_of_the_shape_that_needs_most(shape: str, steps: int, words: str | None) -> None:
    known = {"name", "width", "height", "frames", "steps"}
    declared = [Shape.model_validate(one.model_dump(include=known)) for one in RECORD.workloads]
    step = StepReference(
        shape=shape, steps=steps, digest="ab" * 32, seconds=1, peak_bytes=1, reserved_peak_bytes=1, calls=()
    )
    assert other_step(step, RECORD, planned(), declared) == words
