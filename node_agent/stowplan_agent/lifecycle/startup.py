"""The start of one process, phase by phase, and its ends.

Each phase is a method that returns how it ended; `phases` says what comes next. Whatever goes wrong after the seed
placement was proven by the probe ends in that placement again, proven anew, or ends the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.facts import bytes_text, infeasible_text, plan_status, summary
from stowplan_agent.lifecycle.phases import ENDS, Outcome, next_phase
from stowplan_agent.lifecycle.preparation import Preparation, Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.proof import Proof
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.planning import cost, solve
from stowplan_agent.transaction import ApplyError, apply, difference
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.residency_placement import Phase

_log = logging.getLogger(__name__)


class Startup:
    """One start. After `run` returned Ready or RolledBack, `prepared` is what serves."""

    def __init__(self, settings: StartSettings, progress: Progress) -> None:
        """Nothing runs yet."""
        self.preparation = Preparation(settings)
        self.error: StartError | None = None
        """Why the last failed phase failed."""
        self.plan: Plan | None = None
        self._settings = settings
        self._progress = progress
        self._proof: Proof | None = None
        self._target: Placement | None = None
        self._phases: dict[Phase, Callable[[], Outcome]] = {
            "Inventory": self._done(self.preparation.take_inventory),
            "Load": self._done(self.preparation.load),
            "Warm": self._done(self.preparation.warm),
            "Probe": self._probe,
            "WarmAgain": self._done(self.preparation.warm_again),
            "Solve": self._solve,
            "Apply": self._apply,
            "Validate": self._validate,
            "RollBack": self._roll_back,
        }

    @property
    def prepared(self) -> Prepared:
        """Session, record and reference of this start."""
        return self.preparation.prepared

    def run(self, *, until: Phase | None = None) -> Phase:
        """Run phases until an end, or until ``until`` is done; returns the phase reached. Raises `RollbackFailed`."""
        phase, outcome = next_phase("Pending", Outcome.DONE), Outcome.DONE
        while phase not in ENDS:
            self._progress.begin(phase)
            try:
                outcome = self._phases[phase]()
            except StartError as error:
                outcome, self.error = Outcome.FAILED, error
            except Exception as error:
                _log.exception("phase %s failed", phase)
                reason = PlacementReason.VALIDATION_FAILED if phase == "Validate" else PlacementReason.FAILED
                outcome, self.error = Outcome.FAILED, StartError(reason, f"{phase}: {type(error).__name__}: {error}")
            self._progress.end(phase)
            if outcome is Outcome.FAILED:
                self._failed(phase)
            if phase == until and outcome is not Outcome.FAILED:
                return phase
            phase = next_phase(phase, outcome)
        self._finish(phase)
        return phase

    def _done(self, work: Callable[[], None]) -> Callable[[], Outcome]:
        def phase() -> Outcome:
            work()
            return Outcome.DONE

        return phase

    def _probe(self) -> Outcome:
        self.preparation.probe()
        prepared = self.prepared
        self._proof = Proof(prepared, self._settings)
        if prepared.record.extrapolated:
            message = f"measured at {self._proof.measured_shape}; the declared shape did not fit the seed placement"
            self._progress.condition(PlacementCondition.CALIBRATED, "True", PlacementReason.EXTRAPOLATED, message)
        else:
            message = f"a request takes {prepared.reference.seconds:.3f} s with everything streamed"
            self._progress.condition(PlacementCondition.CALIBRATED, "True", PlacementReason.MEASURED, message)
        return Outcome.DONE

    def _solve(self) -> Outcome:
        record, residency = self.prepared.record, self._settings.spec.residency
        if self._settings.disabled or residency.mode == "Static":
            disabled = self._settings.disabled
            reason = PlacementReason.RESIDENCY_DISABLED if disabled else PlacementReason.STATIC_MODE
            self._progress.condition(PlacementCondition.APPLIED, "False", reason, "the seed placement is served")
            self._target = self.prepared.session.placement()
            self._promise(self._target)
            return Outcome.KEEP
        if residency.mode == "Pinned":
            assert residency.placement is not None, "the CRD's rules ask for it"
            return self._take(Placement(components=residency.placement.components), pinned=True)
        self.plan = solve(record)
        if self.plan.placement is None:
            raise StartError(PlacementReason.INFEASIBLE, infeasible_text(self.plan))
        self._progress.facts(plan=plan_status(self.plan))
        return self._take(self.plan.placement, pinned=False)

    def _take(self, target: Placement, *, pinned: bool) -> Outcome:
        """Make a placement the target; the seed placement, if it is the same, stays."""
        if pinned:
            problems = cost(self.prepared.record, target).violations
            if problems:
                reason = next((PlacementReason.SPEC_INVALID for p in problems if p.constraint == "entry"), None)
                message = "residency.placement: " + "; ".join(problem.message for problem in problems[:3])
                raise StartError(reason or PlacementReason.INFEASIBLE, message)
        self._target = target
        self._promise(target)
        moves = difference(self.prepared.session.placement(), target)
        if not moves:
            self._progress.condition(
                PlacementCondition.APPLIED, "True", PlacementReason.ALREADY_OPTIMAL, "the seed placement is the plan"
            )
            return Outcome.KEEP
        return Outcome.DONE

    def _promise(self, target: Placement) -> None:
        price = cost(self.prepared.record, target)
        peak = max(max(ranks) for ranks in price.device_bytes)
        self._progress.metrics.set_predicted(seconds=price.seconds, peak_bytes=peak)

    def _apply(self) -> Outcome:
        session = self.prepared.session
        assert self._target is not None
        try:
            apply(
                session.engine,
                difference(session.placement(), self._target),
                check=session.check,
                faults=self._settings.faults,
            )
        except ApplyError as error:
            reason = PlacementReason.OUT_OF_MEMORY if error.out_of_memory else PlacementReason.APPLY_FAILED
            raise StartError(reason, str(error)) from error
        pinned = self._settings.spec.residency.mode == "Pinned"
        reason = PlacementReason.PINNED if pinned else PlacementReason.PLAN_APPLIED
        self._progress.condition(PlacementCondition.APPLIED, "True", reason, summary(self._target))
        return Outcome.DONE

    def _validate(self) -> Outcome:
        assert self._proof is not None
        self._proof.prove(self._progress)
        return Outcome.DONE

    def _roll_back(self) -> Outcome:
        """Back to the seed placement, which the probe ran in; proven again before anything is served."""
        assert self._proof is not None and self.error is not None
        session, failure = self.prepared.session, self.error
        given_up = summary(self._target) if self._target is not None else "the seed placement"
        measured = self._proof.last
        text = "" if measured is None else bytes_text(measured.peak_bytes, measured.seconds)
        try:
            self._settings.faults.reach("rollback")
            apply(session.engine, difference(session.placement(), self.prepared.seed), check=session.check)
            self._proof.prove(self._progress)
        except Exception as error:
            raise RollbackFailed(
                PlacementReason.FAILED, f"rolling back failed: {error}; it was to undo this: {failure}"
            ) from error
        self._progress.rolled_back(failure.reason, str(failure), given_up, summary(self.prepared.seed), text)
        self._progress.condition(PlacementCondition.APPLIED, "False", failure.reason, str(failure))
        return Outcome.DONE

    def _failed(self, phase: Phase) -> None:
        error = self.error
        assert error is not None
        _log.warning("phase %s failed (%s): %s", phase, error.reason, error)
        if isinstance(error, RollbackFailed):
            self._progress.finish("Failed", str(error))
            raise error
        if phase in ("Inventory", "Load", "Warm", "Probe", "WarmAgain"):
            self._progress.condition(PlacementCondition.CALIBRATED, "False", error.reason, str(error))
        elif phase == "Solve":
            self._progress.condition(PlacementCondition.APPLIED, "False", error.reason, str(error))

    def _finish(self, phase: Phase) -> None:
        if phase == "Failed":
            self._progress.finish(phase, str(self.error))
            return
        self.prepared.session.engine.commit()
        assert self._proof is not None
        self._proof.report(self._progress, self.plan)
        self._progress.finish(phase, self._proof.sentence())
