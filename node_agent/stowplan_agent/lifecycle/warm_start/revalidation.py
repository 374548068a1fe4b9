"""Proving a stored placement: one step at full shape, judged by memory and bits against what was stored of the same.

Of several declared shapes it is the one that needs most memory: what fits it admits the others.
Seconds of one step say little and are not judged here; they are reported, and drift watches them from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from stowplan_agent.accelerators.shortage import first_sentence
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.in_force import SEED, make_final, report
from stowplan_agent.lifecycle.preparation import Preparation, Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.lifecycle.warm_start.stored_start import StepReference, StoredCall, StoredStart
from stowplan_agent.planning.limits import reserve_bytes
from stowplan_agent.transaction import Criteria, Measured, Reference, judge, perturbed
from stowplan_agent.weights import LedgerError, Timeline
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import StepStatus, ValidationStatus

PEAK_DIVISOR: Final = 10
"""A peak higher than the stored one by more than this part of it is another start's: what drift is, too."""


class Revalidation:
    """The proof of one stored placement, in which everything lies."""

    def __init__(self, stored: StoredStart, prepared: Prepared, settings: StartSettings) -> None:
        """``prepared`` has the stored record, under the limits of now."""
        self._stored = stored
        self._prepared = prepared
        self._faults = settings.faults
        self._shapes = settings.spec.workload.shapes
        self._shape = shape_of(stored.step, self._shapes)
        record = prepared.record
        self._reserve = min(reserve_bytes(record, interval, record.ranks[0]) for interval in record.intervals)
        self._criteria = Criteria(
            capacity_bytes=record.ranks[0].capacity_bytes,
            reserve_bytes=self._reserve,
            reproducible=settings.spec.residency.validation.reproducible,
        )
        self._last: Measured | None = None

    def prove(self, progress: Progress) -> None:
        """Run the step, judge it, make the placement final. Raises `StartError` with what differed."""
        step, session = self._stored.step, self._prepared.session
        try:
            if self._faults.fires("validate.run"):
                raise torch.OutOfMemoryError("fault validate.run was injected by STOWPLAN_FAULTS")
            ran = session.measure(self._shape, Timeline(stretches_of(step)))
        except torch.OutOfMemoryError as error:
            message = f"one step at full shape ran out of memory: {first_sentence(error)}"
            raise StartError(PlacementReason.OUT_OF_MEMORY, message) from error
        measured = self._last = perturbed(ran, self._faults, self._criteria.capacity_bytes)
        self._tell(progress, measured)
        try:
            session.check()
        except LedgerError as error:
            raise StartError(PlacementReason.LEDGER_MISMATCH, str(error)) from error
        findings = judge(Reference(step.digest, step.seconds), replace(measured, seconds=None), self._criteria)
        if findings:
            raise StartError(findings[0].reason, "; ".join(finding.message for finding in findings))
        if measured.peak_bytes > step.peak_bytes + step.peak_bytes // PEAK_DIVISOR:
            message = (
                f"one step peaks at {for_people(measured.peak_bytes)}, and at {for_people(step.peak_bytes)} before"
            )
            raise StartError(PlacementReason.PEAK_OVER_BUDGET, message)
        make_final(session, self._faults)

    def report(self, progress: Progress) -> str:
        """Status and metrics of what was proven; the proof in one sentence."""
        assert self._last is not None, "it was proven first"
        plan = SEED if self._stored.plan.kept else self._stored.plan.id
        report(
            progress,
            self._prepared.session,
            self._prepared.record,
            plan=plan,
            reserve_bytes=self._reserve,
            peak_bytes=self._last.peak_bytes,
        )
        bits = "bit-equal" if self._last.digest == self._stored.step.digest else "not compared bit by bit"
        before, when = self._stored.step.seconds, self._stored.proven_at
        return f"{bits}; {describe(self._shape)} in {self._last.seconds:.3f} s, {before:.3f} s when proven at {when}"

    def _heaviest_status(self, measured: Measured) -> StepStatus | None:
        """None where the step is of the default shape itself."""
        if self._shape.name == self._shapes[0].name:
            return None
        peak = self._stored.step.peak_bytes
        return StepStatus(shape=self._shape.name, peak_bytes=measured.peak_bytes, predicted_peak_bytes=peak)

    def _tell(self, progress: Progress, measured: Measured) -> None:
        step = self._stored.step
        assert measured.seconds is not None
        # What was measured of the same request in the same placement is the best prediction there is.
        progress.metrics.set_predicted(seconds=step.seconds, peak_bytes=step.peak_bytes)
        progress.metrics.set_measured(seconds=measured.seconds, peak_bytes=measured.peak_bytes)
        progress.facts(
            plan=self._stored.plan,
            validation=ValidationStatus(
                milliseconds=round(measured.seconds * 1000),
                reference_milliseconds=round(step.seconds * 1000),
                peak_bytes=measured.peak_bytes,
                bit_equal=measured.digest == step.digest,
                heaviest=self._heaviest_status(measured),
            ),
        )


def prepared_of(stored: StoredStart, record: CalibrationRecord, preparation: Preparation) -> Prepared:
    """What serving builds on, from what is stored."""
    reference, shapes = stored.reference, preparation.settings.spec.workload.shapes
    return Prepared(
        session=preparation.session,
        record=record,
        as_run=stored.as_run,
        seed=preparation.loaded.seed,
        reference=Reference(reference.digest, reference.seconds),
        reference_shape=shape_of(reference, shapes),
        reference_calls=stretches_of(reference),
        step_calls={stored.step.shape: stretches_of(stored.step)},
    )


def shape_of(reference: StepReference, shapes: Sequence[Shape]) -> Shape:
    """What a stored request ran. Raises KeyError for a shape that is not declared."""
    return {shape.name: shape for shape in shapes}[reference.shape].model_copy(update={"steps": reference.steps})


def stretches_of(reference: StepReference) -> list[Stretch]:
    """What a stored request called, for the engine to expect it again."""
    return [Stretch(one.component, one.calls, one.passes) for one in reference.calls]


def calls_of(stretches: Sequence[Stretch]) -> tuple[StoredCall, ...]:
    """The same, to be stored."""
    return tuple(StoredCall(component=one.component, calls=one.calls, passes=one.passes) for one in stretches)
