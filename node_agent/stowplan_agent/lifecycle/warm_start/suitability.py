"""Does a stored placement suit this pod at all? Asked before a weight is read, of values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stowplan_agent.calibration import Machine
from stowplan_agent.lifecycle.heaviest import heaviest
from stowplan_agent.lifecycle.warm_start.stored_start import StepReference, StoredStart
from stowplan_agent.planning import cost
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, Component


def unsuitable(start: StoredStart, machine: Machine, shapes: Sequence[Shape]) -> str | None:
    """Why a stored start cannot serve these shapes on this machine; None where it may."""
    record, placement = start.record, start.placement
    try:
        return (
            other_requests(record, shapes)
            or other_step(start.step, record, placement, shapes)
            or misfit(on_machine(record, machine), placement)
        )
    except Exception as error:  # whoever wrote the file may have meant harm: it is not tried, and that is all
        return f"its record and placement do not go together ({type(error).__name__}: {error})"


def on_machine(record: CalibrationRecord, machine: Machine) -> CalibrationRecord:
    """The record of one rank under the limits of this pod; what was outside the allocator then will be again."""
    rank, node = record.ranks[0], record.nodes[0]
    now = replace(machine, outside_bytes=max(machine.outside_bytes, rank.outside_bytes))
    limits = {
        "capacity_bytes": now.capacity_bytes,
        "outside_bytes": now.outside_bytes,
        "reserve_bytes": now.reserve_bytes,
    }
    memory = {"host_bytes": now.host_bytes, "pinnable_bytes": now.pinnable_bytes}
    return record.model_copy(
        update={"ranks": (rank.model_copy(update=limits),), "nodes": (node.model_copy(update=memory),)}
    )


def misfit(record: CalibrationRecord, placement: Placement) -> str | None:
    """Which limit of the record the placement breaks, with its numbers; None where it fits."""
    violations = cost(record, placement).violations
    return violations[0].message if violations else None


def other_requests(record: CalibrationRecord, shapes: Sequence[Shape]) -> str | None:
    """In what the workloads, by which requests are admitted, are not the declared shapes; None where they are."""
    stored = [(one.width, one.height, one.frames, one.steps) for one in record.workloads]
    declared = [(one.width, one.height, one.frames, one.steps) for one in shapes]
    return None if stored == declared else f"it was measured for {stored}, and {declared} are declared"


def other_step(
    step: StepReference, record: CalibrationRecord, placement: Placement, shapes: Sequence[Shape]
) -> str | None:
    """Which shape should have been proven in one step, where it is another than the stored one; None where it is."""
    heavy, _ = heaviest(record, placement, shapes)
    if (step.shape, step.steps) == (heavy.name, 1):
        return None
    return f"it was proven with {step.steps} steps of shape {step.shape}, and {heavy.name} needs most memory"


def other_parts(found: Sequence[Component], stored: Sequence[Component]) -> str | None:
    """In what the loaded components differ from those of the record; None where they are the same."""
    now, then = ({part.name: part for part in parts} for parts in (found, stored))
    for name in {**now, **then}:
        if name not in now or name not in then:
            return f"component {name} is in one of the two only"
        ours, theirs = ((part.loose_bytes, part.groups) for part in (now[name], then[name]))
        if ours != theirs:
            return (
                f"component {name} has {now[name].total_bytes()} bytes in {_layers(now[name])} layers, and had "
                f"{then[name].total_bytes()} in {_layers(then[name])}"
            )
    return None


def _layers(part: Component) -> int:
    return sum(len(group.layer_bytes) for group in part.groups)
