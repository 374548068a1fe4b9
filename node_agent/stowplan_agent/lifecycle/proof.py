"""Proving the placement in force, and reporting what the proof measured.

Judged are output, memory and seconds of the reference's request, the ledger against the allocator, and the memory of
one step at the heaviest declared shape (`proof_requests`).

The proof itself is never cut to one step. RUNTIME.md allows that where only residents were added; but that is what
nearly every plan does to a seed placement in which everything streams, and one step has no reference: it would take two
requests of one step, one of them in the seed placement, to say less than one of four does.
"""

from __future__ import annotations

from dataclasses import replace

from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.heaviest import heaviest_text
from stowplan_agent.lifecycle.in_force import SEED, report
from stowplan_agent.lifecycle.prediction import promise
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.proof_requests import ProofRequests
from stowplan_agent.lifecycle.reference_runs import ReferenceRuns
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.planning.limits import reserve_bytes
from stowplan_agent.transaction import Criteria, Measured, judge
from stowplan_agent.weights import Timeline
from stowplan_api.contract import PlacementReason
from stowplan_api.residency_placement import ValidationStatus


class Proof:
    """Judges placements of one start against its reference."""

    def __init__(self, prepared: Prepared, settings: StartSettings) -> None:
        """``prepared`` has the reference."""
        self._prepared = prepared
        self._runs = ReferenceRuns(prepared.reference)
        validation = settings.spec.residency.validation
        record = prepared.record
        rank = record.ranks[prepared.session.company.rank]
        self.reserve_bytes = min(reserve_bytes(record, interval, rank) for interval in record.intervals)
        self._criteria = Criteria(
            capacity_bytes=rank.capacity_bytes,
            reserve_bytes=self.reserve_bytes,
            max_slowdown=validation.max_slowdown_percent / 100,
            reproducible=validation.reproducible,
        )
        self.requests = ProofRequests(prepared, settings, self._criteria)
        self.promised_seconds = 0.0
        """What that request was to take."""

    def prove(self, progress: Progress, *, timed: bool = True, keeps: bool = False) -> None:
        """Run and judge, seconds only if ``timed``. Raises `StartError` with what failed; `requests` has the numbers.

        ``keeps``: a step is run whatever shapes there are, for the start that comes next.
        """
        self.requests.run(keeps=keeps)
        self.judge(progress, timed=timed)

    def prove_again(self, progress: Progress) -> None:
        """As `prove`, of a placement whose output was judged by its spread, left for that, and gone back to.

        What is asked of the output now is that no weight has changed on the way: that it is one of this model's.
        """
        self.requests.run()
        if self._runs.strays(self.requests.output):
            message = "the output is none of this model's since the placement was left to run the reference, and gone "
            raise StartError(PlacementReason.OUTPUT_DIFFERS, message + "back to")
        self.judge(progress, bits=False)

    def judge(self, progress: Progress, *, timed: bool = True, bits: bool = True) -> None:
        """Report what was measured last, and judge it. Raises `StartError` with every criterion that failed."""
        ran, reference = self.requests, self._runs.reference
        assert ran.last is not None and ran.last.seconds is not None
        measured, seconds = self._runs.compared(ran.last, ran.output), ran.last.seconds
        ran.last = measured
        self._compare(progress, measured)
        progress.facts(
            validation=ValidationStatus(
                milliseconds=round(seconds * 1000),
                reference_milliseconds=round(reference.seconds * 1000),
                peak_bytes=ran.peak_bytes,
                bit_equal=measured.digest == reference.digest,
                heaviest=ran.heaviest_status(),
            )
        )
        criteria = self._criteria if bits else replace(self._criteria, reproducible=False)
        findings = judge(reference, measured if timed else replace(measured, seconds=None), criteria)
        if findings:
            raise StartError(findings[0].reason, "; ".join(finding.message for finding in findings))

    def learn_spread(self) -> bool:
        """Whether the reference, run again in its own placement, which must be in force, does not repeat itself.

        Raises torch.OutOfMemoryError, and what the pipeline raises.
        """
        prepared = self._prepared
        return self._runs.learn(
            lambda: prepared.session.output(prepared.reference_shape, Timeline(prepared.reference_calls))
        )

    @property
    def knows_spread(self) -> bool:
        """Whether the reference is known not to repeat itself."""
        return self._runs.spread_is_known

    def widen_spread(self) -> bool:
        """What was measured last in the reference's own placement is one more run of it; False where it cannot be."""
        return self._runs.widen(self.requests.output)

    def sentence(self) -> str:
        """The proof in one sentence, for the condition."""
        measured, reference = self.requests.last, self._runs.reference
        assert measured is not None and measured.seconds is not None
        bits = "bit-equal" if measured.digest == reference.digest else "not compared bit by bit"
        if reference.spread is not None and measured.distance is not None:
            bits = f"{measured.distance:.3g} from the reference, of which two runs are {reference.spread:.3g} apart"
        shape = describe(self._prepared.reference_shape)
        step = self.requests.heaviest_status()
        return (
            f"{bits}; {shape} in {measured.seconds:.3f} s ({self.promised_seconds:.3f} s predicted), "
            f"{reference.seconds:.3f} s with everything streamed"
        ) + (f"; {heaviest_text(step)}" if step else "")

    def report(self, progress: Progress, plan: str | None) -> None:
        """Status and metrics of the placement in force, from the ledger and the last proof. ``plan``: its id."""
        session, record = self._prepared.session, self._prepared.record
        chosen, reserve = plan or SEED, self.reserve_bytes
        report(progress, session, record, plan=chosen, reserve_bytes=reserve, peak_bytes=self.requests.peak_bytes)

    def _compare(self, progress: Progress, measured: Measured) -> None:
        """Set what was promised beside what was measured: both of the request that ran."""
        prepared, record = self._prepared, self._prepared.record
        placement = prepared.session.placement()
        declared = promise(record, placement, record.workloads[0])
        self.promised_seconds = promise(prepared.as_run, placement, prepared.as_run.workloads[0]).seconds
        assert measured.seconds is not None
        progress.metrics.set_predicted(seconds=self.promised_seconds, peak_bytes=declared.peak_bytes)
        progress.metrics.set_measured(seconds=measured.seconds, peak_bytes=measured.peak_bytes)
