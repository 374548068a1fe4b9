"""Proving the placement in force, and reporting what the proof measured.

One full-shape request of as many steps as the reference had: output, memory, seconds, and the ledger against the
allocator. Where only a lighter shape could be measured before, its output is compared as well, since bits need a
reference of the same shape.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace

import torch

from stowplan_agent.accelerators.shortage import first_sentence
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.in_force import SEED, report
from stowplan_agent.lifecycle.prediction import promise
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.pipeline.hosted import Frames
from stowplan_agent.planning.limits import reserve_bytes
from stowplan_agent.transaction import Criteria, Measured, distance, judge, nearest, perturbed, strays
from stowplan_agent.weights import LedgerError, Timeline
from stowplan_api.contract import PlacementReason
from stowplan_api.plan import Plan
from stowplan_api.residency_placement import ValidationStatus

_log = logging.getLogger(__name__)


class Proof:
    """Judges placements of one start against its reference."""

    def __init__(self, prepared: Prepared, settings: StartSettings) -> None:
        """``prepared`` has the reference."""
        self._prepared = prepared
        declared = settings.spec.workload.shapes[0]
        self._shape = declared.model_copy(update={"steps": prepared.reference_shape.steps})
        self._reference = prepared.reference
        self._runs: tuple[Frames, ...] = ()
        self._output: Frames | None = None
        self._faults = settings.faults
        validation = settings.spec.residency.validation
        record = prepared.record
        self.reserve_bytes = min(reserve_bytes(record, interval, record.ranks[0]) for interval in record.intervals)
        self._criteria = Criteria(
            capacity_bytes=record.ranks[0].capacity_bytes,
            reserve_bytes=self.reserve_bytes,
            max_slowdown=validation.max_slowdown_percent / 100,
            reproducible=validation.reproducible,
        )
        self.last: Measured | None = None
        """What was measured last."""
        self.promised_seconds = 0.0
        """What that request was to take."""

    def prove(self, progress: Progress, *, timed: bool = True) -> None:
        """Run and judge, seconds only if ``timed``. Raises `StartError` with what failed; `last` has the numbers."""
        session = self._prepared.session
        try:
            if self._faults.fires("validate.run"):
                raise torch.OutOfMemoryError("fault validate.run was injected by STOWPLAN_FAULTS")
            measured = self._measured()
        except torch.OutOfMemoryError as error:
            raise StartError(
                PlacementReason.OUT_OF_MEMORY, f"the validation request ran out of memory: {first_sentence(error)}"
            ) from error
        self.last = perturbed(measured, self._faults, self._criteria.capacity_bytes)
        try:
            session.check()
        except LedgerError as error:
            raise StartError(PlacementReason.LEDGER_MISMATCH, str(error)) from error
        self.judge(progress, timed=timed)

    def judge(self, progress: Progress, *, timed: bool = True) -> None:
        """Report what was measured last, and judge it. Raises `StartError` with every criterion that failed."""
        assert self.last is not None
        measured, reference = self.last, self._reference
        if self._runs and self._output is not None and measured.digest != reference.digest:
            self.last = measured = replace(measured, distance=nearest(self._output, self._runs))
        assert measured.seconds is not None
        self._compare(progress, measured)
        progress.facts(
            validation=ValidationStatus(
                milliseconds=round(measured.seconds * 1000),
                reference_milliseconds=round(reference.seconds * 1000),
                peak_bytes=measured.peak_bytes,
                bit_equal=measured.digest == reference.digest,
            )
        )
        findings = judge(reference, measured if timed else replace(measured, seconds=None), self._criteria)
        if findings:
            raise StartError(findings[0].reason, "; ".join(finding.message for finding in findings))

    def learn_spread(self) -> bool:
        """Run the reference once more, in its own placement, which must be in force: does it repeat itself?

        If it does not, a third run says by how much. Two that agree with each other and not with the first are no
        spread: something has changed. Raises torch.OutOfMemoryError, and what the pipeline raises.
        """
        prepared = self._prepared
        calls = prepared.reference_calls
        second, one = prepared.session.output(prepared.reference_shape, Timeline(calls))
        if second.digest == self._reference.digest:
            return False
        third, other = prepared.session.output(prepared.reference_shape, Timeline(calls))
        if third.digest == second.digest:
            return False
        self._runs = (one, other)
        self._reference = replace(self._reference, spread=distance(one, other))
        return True

    @property
    def knows_spread(self) -> bool:
        """Whether the reference is known not to repeat itself."""
        return bool(self._runs)

    def widen_spread(self) -> bool:
        """What was measured last in the reference's own placement is one more run of it; False where it cannot be."""
        if self._output is not None:
            known = self._reference.spread or 0.0
            if strays(self._output, self._runs, known):
                return False
            most = max(distance(self._output, run) for run in self._runs)
            self._runs = (*self._runs, self._output)
            self._reference = replace(self._reference, spread=max(most, known))
        return True

    def _measured(self) -> Measured:
        """What the request gives; the second one where the first ran out of memory, and all of that came back.

        The cache is emptied between them: memory that was free in pieces may do then.
        """
        accelerator = self._prepared.session.accelerator
        gc.collect()
        held = accelerator.counters().allocated
        try:
            return self._request()
        except torch.OutOfMemoryError as error:
            gc.collect()
            if accelerator.counters().allocated > held:
                raise
            _log.warning("the proof ran out of device memory, and is run once more: %s", first_sentence(error))
        return self._request()

    def _request(self) -> Measured:
        prepared, session = self._prepared, self._prepared.session
        lightened = prepared.reference_shape != self._shape
        expected = () if lightened else prepared.reference_calls
        measured, self._output = session.output(self._shape, Timeline(expected))
        if lightened:
            # Bits and seconds are judged on the shape that has a reference, memory on the declared one.
            light, self._output = session.output(prepared.reference_shape, Timeline(prepared.reference_calls))
            measured = replace(measured, digest=light.digest, seconds=light.seconds)
        if measured.digest == self._reference.digest:
            self._output = None  # it is the reference's
        return measured

    def sentence(self) -> str:
        """The proof in one sentence, for the condition."""
        measured, reference = self.last, self._reference
        assert measured is not None and measured.seconds is not None
        bits = "bit-equal" if measured.digest == reference.digest else "not compared bit by bit"
        if reference.spread is not None and measured.distance is not None:
            bits = f"{measured.distance:.3g} from the reference, of which two runs are {reference.spread:.3g} apart"
        shape = describe(self._prepared.reference_shape)
        return (
            f"{bits}; {shape} in {measured.seconds:.3f} s ({self.promised_seconds:.3f} s predicted), "
            f"{reference.seconds:.3f} s with everything streamed"
        )

    def report(self, progress: Progress, plan: Plan | None) -> None:
        """Status and metrics of the placement in force, from the ledger and the last measurement."""
        assert self.last is not None
        session, record = self._prepared.session, self._prepared.record
        chosen, peak = plan.id if plan else SEED, self.last.peak_bytes
        report(progress, session, record, plan=chosen, reserve_bytes=self.reserve_bytes, peak_bytes=peak)

    def _compare(self, progress: Progress, measured: Measured) -> None:
        """Set what was promised beside what was measured: both of the request that ran."""
        prepared, record = self._prepared, self._prepared.record
        placement = prepared.session.placement()
        declared = promise(record, placement, record.workloads[0])
        self.promised_seconds = promise(prepared.as_run, placement, prepared.as_run.workloads[0]).seconds
        assert measured.seconds is not None
        progress.metrics.set_predicted(seconds=self.promised_seconds, peak_bytes=declared.peak_bytes)
        progress.metrics.set_measured(seconds=measured.seconds, peak_bytes=measured.peak_bytes)
