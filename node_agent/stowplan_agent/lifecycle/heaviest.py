"""One step at the declared shape that needs most memory: what admits every other declared shape. And a re-warm.

The request that proves bits and seconds is of the first declared shape, the one that has a reference. A heavier one
would be let in by its prediction alone; so one step of the heaviest is run as well, in the placement in force, and
judged by memory. It comes first: after a placement the allocator is cold, and the seconds of the request that follows
are judged. What the step gave is also what the next start is compared with, if there is to be one (`warm_start`).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from stowplan_agent.accelerators.shortage import first_sentence
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.prediction import alone
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.planning import cost
from stowplan_agent.planning.limits import reserve_bytes
from stowplan_agent.transaction import Criteria, Measured, judge_memory
from stowplan_agent.weights import Timeline
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import StepStatus

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One step that was run at a declared shape."""

    shape: Shape
    """In one step."""
    measured: Measured
    predicted_peak_bytes: int
    """Of a whole request of this shape: no step needs more."""
    calls: Sequence[Stretch]
    """What it was expected to call."""

    def status(self) -> StepStatus:
        """For the status of a placement."""
        return StepStatus(
            shape=self.shape.name,
            peak_bytes=self.measured.peak_bytes,
            predicted_peak_bytes=self.predicted_peak_bytes,
        )


def heaviest(record: CalibrationRecord, placement: Placement, shapes: Sequence[Shape]) -> tuple[Shape, int]:
    """The shape to prove by one step under a placement, and its predicted peak in bytes of device use. Pure.

    That is the first shape, unless another needs more than it in some interval: then, of these, the one that comes
    nearest to a limit where it does. (Peaks alone do not tell: encoding a prompt is the same for all shapes, and where
    it peaks highest no shape would be heavier than another.) ``shapes`` are the record's workloads, in their order.
    """
    prices = [cost(alone(record, workload), placement).device_bytes for workload in record.workloads]
    reserves = [[reserve_bytes(record, interval, rank) for rank in record.ranks] for interval in record.intervals]

    def nearest(price: Sequence[Sequence[int]]) -> int:
        """The most that it takes, its reserve included, of the intervals in which it takes more than the first."""
        return max(
            (
                taken + kept
                for rows in zip(price, prices[0], reserves, strict=True)
                for taken, first, kept in zip(*rows, strict=True)
                if taken > first
            ),
            default=0,
        )

    chosen = max(range(len(shapes)), key=lambda index: nearest(prices[index]))
    return shapes[chosen], max(max(ranks) for ranks in prices[chosen])


def run_step(session: Session, shape: Shape, calls: Sequence[Stretch], predicted_peak_bytes: int) -> Step:
    """One step of a shape in the placement in force. Raises torch.OutOfMemoryError, `Stopped`, and what fails."""
    one = shape.model_copy(update={"steps": 1})
    return Step(one, session.measure(one, Timeline(calls)), predicted_peak_bytes, calls)


def refute(step: Step, criteria: Criteria) -> None:
    """Raises `StartError` with every limit of memory that the step passed."""
    findings = judge_memory(step.measured, criteria)
    if findings:
        said = "; ".join(finding.message for finding in findings)
        raise StartError(findings[0].reason, f"shape {step.shape.name} ({describe(step.shape)}): {said}")


def heaviest_text(step: StepStatus) -> str:
    """For people: what the step needed, beside what was predicted."""
    measured, predicted = for_people(step.peak_bytes), for_people(step.predicted_peak_bytes)
    return f"{step.shape}, the shape that needs most, peaks at {measured} ({predicted} predicted)"


def tried_twice(session: Session, request: Callable[[], T]) -> T:
    """What a request gives; the second one where the first ran out of memory, and all of that came back.

    The cache is emptied between them: memory that was free in pieces may do then. Raises torch.OutOfMemoryError.
    """
    accelerator = session.accelerator
    gc.collect()
    held = accelerator.counters().allocated
    try:
        return request()
    except torch.OutOfMemoryError as error:
        gc.collect()
        if session.company.most("memory that has not come back", accelerator.counters().allocated - held) > 0:
            raise
        _log.warning("the proof ran out of device memory, and is run once more: %s", first_sentence(error))
    return request()


def out_of_memory(what: str, error: torch.OutOfMemoryError) -> StartError:
    """What a request of a proof that ran out of memory is to a start."""
    return StartError(PlacementReason.OUT_OF_MEMORY, f"{what} ran out of memory: {first_sentence(error)}")
