"""The requests of one proof, in the placement in force: what is run, and what it gave.

The reference's own request, at full shape, in as many steps as it had. Where another declared shape needs more memory,
or the next start is to be left something, one step of the heaviest shape comes first (`heaviest`): it re-warms the
placement. Where only a lighter shape could be measured before, that is run as well, since bits need a reference of the
same shape.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.facts import bytes_text
from stowplan_agent.lifecycle.heaviest import Step, heaviest, out_of_memory, refute, run_step, tried_twice
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.pipeline.hosted import Frames
from stowplan_agent.transaction import Criteria, Measured, perturbed
from stowplan_agent.weights import LedgerError, Timeline
from stowplan_api.contract import PlacementReason
from stowplan_api.residency_placement import StepStatus


class ProofRequests:
    """Runs them, once a proof; holds what the last ones gave."""

    def __init__(self, prepared: Prepared, settings: StartSettings, criteria: Criteria) -> None:
        """``prepared`` has the reference, and the record that says which shape is the heaviest."""
        self._prepared = prepared
        self._shapes = settings.spec.workload.shapes
        self._faults = settings.faults
        self._criteria = criteria
        self.last: Measured | None = None
        """What was measured last of the reference's request."""
        self.output: Frames | None = None
        """Its output; None where that has the first run's bits."""
        self.step: Step | None = None
        """The step that was run before it, if any was."""

    @property
    def peak_bytes(self) -> int:
        """The highest device use in the requests of the last proof; 0 before there was any."""
        ran = (self.last, self.step.measured if self.step else None)
        return max((measured.peak_bytes for measured in ran if measured is not None), default=0)

    def numbers(self) -> str:
        """What was measured last, for a rollback's record; empty where nothing was."""
        if self.last is None and self.step is None:
            return ""
        return bytes_text(self.peak_bytes, self.last.seconds if self.last else None)

    def run(self, *, keeps: bool = False) -> None:
        """Run the step and judge its memory; run the reference's request, which is left to be judged.

        ``keeps``: a step is run whatever shapes there are. Raises `StartError` for what fails, for a step that breaks a
        limit, and where ledger and allocator disagree after one of them.
        """
        session, self.last = self._prepared.session, None
        self._prove_heaviest(keeps=keeps)
        try:
            if self._faults.fires("validate.run"):
                raise torch.OutOfMemoryError("fault validate.run was injected by STOWPLAN_FAULTS")
            measured = tried_twice(session, self._request)
        except torch.OutOfMemoryError as error:
            raise out_of_memory("the validation request", error) from error
        self.last = perturbed(measured, self._faults, self._criteria.capacity_bytes)
        self._check_ledger()

    def _prove_heaviest(self, *, keeps: bool) -> None:
        """One step at the heaviest shape, where that is another than the reference's. Raises `StartError`."""
        session, self.step = self._prepared.session, None
        shape, peak = heaviest(self._prepared.record, session.placement(), self._shapes)
        if shape == self._shapes[0] and not keeps:
            return
        calls = self._prepared.step_calls.get(shape.name, ())
        try:
            self.step = tried_twice(session, lambda: run_step(session, shape, calls, peak))
        except torch.OutOfMemoryError as error:
            raise out_of_memory(f"one step of shape {shape.name}", error) from error
        self._check_ledger()
        refute(self.step, self._criteria)

    def _check_ledger(self) -> None:
        try:
            self._prepared.session.check()
        except LedgerError as error:
            raise StartError(PlacementReason.LEDGER_MISMATCH, str(error)) from error

    def _request(self) -> Measured:
        prepared, session = self._prepared, self._prepared.session
        shape = self._shapes[0].model_copy(update={"steps": prepared.reference_shape.steps})
        lightened = prepared.reference_shape != shape
        expected = () if lightened else prepared.reference_calls
        measured, self.output = session.output(shape, Timeline(expected))
        if lightened:
            # Bits and seconds are judged on the shape that has a reference, memory on the declared one.
            light, self.output = session.output(prepared.reference_shape, Timeline(prepared.reference_calls))
            measured = replace(measured, digest=light.digest, seconds=light.seconds)
        if measured.digest == prepared.reference.digest:
            self.output = None  # it is the reference's
        return measured

    def heaviest_status(self) -> StepStatus | None:
        """The step for the status; None where the reference's request is of the heaviest shape itself."""
        if self.step is None or self.step.shape.name == self._shapes[0].name:
            return None
        return self.step.status()
