"""The start of one process, phase by phase, and its ends.

Each phase is a method that returns how it ended; `phases` says what comes next. Whatever goes wrong after the seed
placement was proven by the probe ends in that placement again, proven anew; where that fails too the door stays shut,
and where not even the weights come back the process must end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.facts import bytes_text, infeasible_text, plan_status, summary
from stowplan_agent.lifecycle.phases import ENDS, Outcome, next_phase
from stowplan_agent.lifecycle.preparation import Preparation, Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.proof import Proof
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.lifecycle.target import Target, choose_target
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.planning import cost, solve
from stowplan_agent.transaction import ApplyError, UndoError, apply, difference
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.residency_placement import Phase

_log = logging.getLogger(__name__)
UNDONE_BY_ROLLBACK: Final[frozenset[Phase]] = frozenset({"Apply", "Validate", "RollBack"})
"""Phases whose failure is reported by the rollback; any other's is the answer to what it was to find out."""


class Startup:
    """One start. After `run` returned Ready or RolledBack, `prepared` is what serves."""

    def __init__(
        self,
        settings: StartSettings,
        progress: Progress,
        *,
        stop: Callable[[], bool] = lambda: False,
        preparation: Preparation | None = None,
    ) -> None:
        """Nothing runs yet. ``stop`` is asked before each phase, and after each step of a request."""
        self.preparation = preparation or Preparation(settings, stop)
        self.error: StartError | None = None
        """Why the last failed phase failed."""
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._proof: Proof | None = None
        self._target: Target | None = None
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
        """Run phases until an end, or until ``until`` is done; returns the phase reached.

        Raises `RollbackFailed`, and `Stopped` when ``stop`` said so.
        """
        phase = next_phase("Pending", Outcome.DONE)
        while phase not in ENDS:
            if self._stop():
                raise Stopped
            outcome = self._attempt(phase)
            if phase == until and outcome is not Outcome.FAILED:
                return phase
            phase = next_phase(phase, outcome)
        self._finish(phase)
        return phase

    def close(self) -> None:
        """Give device and pipeline back. Nothing serves afterwards."""
        self.preparation.close()

    def _attempt(self, phase: Phase) -> Outcome:
        """Run one phase; what it raises becomes `error`, without the traceback that would hold device memory."""
        self._progress.begin(phase)
        try:
            return self._phases[phase]()
        except (RollbackFailed, Stopped) as error:
            if isinstance(error, RollbackFailed):
                self._progress.finish("Failed", str(error))
            raise
        except StartError as error:
            self.error = StartError(error.reason, str(error))
        except Exception as error:
            _log.exception("phase %s failed", phase)
            reason = PlacementReason.VALIDATION_FAILED if phase == "Validate" else PlacementReason.FAILED
            self.error = StartError(reason, f"{phase}: {type(error).__name__}: {error}")
        finally:
            self._progress.end(phase)
        _log.warning("phase %s failed (%s): %s", phase, self.error.reason, self.error)
        if phase not in UNDONE_BY_ROLLBACK:
            condition = PlacementCondition.APPLIED if phase == "Solve" else PlacementCondition.CALIBRATED
            self._progress.condition(condition, "False", self.error.reason, str(self.error))
        return Outcome.FAILED

    @staticmethod
    def _done(work: Callable[[], None]) -> Callable[[], Outcome]:
        def phase() -> Outcome:
            work()
            return Outcome.DONE

        return phase

    def _probe(self) -> Outcome:
        self.preparation.probe()
        prepared = self.prepared
        self._proof = Proof(prepared, self._settings)
        if prepared.record.extrapolated:
            reason = PlacementReason.EXTRAPOLATED
            message = "; ".join(prepared.record.provenance[1:])
        else:
            reason = PlacementReason.MEASURED
            shape = describe(prepared.reference_shape)
            message = f"{shape} take {prepared.reference.seconds:.3f} s with everything streamed"
        self._progress.condition(PlacementCondition.CALIBRATED, "True", reason, message)
        return Outcome.DONE

    def _solve(self) -> Outcome:
        current, residency = self.prepared.session.placement(), self._settings.spec.residency
        if self._settings.disabled or residency.mode == "Static":
            disabled = self._settings.disabled
            reason = PlacementReason.RESIDENCY_DISABLED if disabled else PlacementReason.STATIC_MODE
            self._progress.condition(PlacementCondition.APPLIED, "False", reason, "the seed placement is served")
            target = Target(current, reason)
        elif self.prepared.record.extrapolated and residency.mode == "Auto":
            # What was not measured is no ground to move anything; the seed placement may fit, and proves it or not.
            reason, message = PlacementReason.EXTRAPOLATED, "the seed placement is served if it proves itself: "
            message += "the declared shape ran out of memory when it was measured"
            self._progress.condition(PlacementCondition.APPLIED, "False", reason, message)
            target = Target(current, reason)
        else:
            target = choose_target(self.prepared.record, residency)
        self._target = target
        if target.plan is not None:
            self._progress.facts(plan=plan_status(target.plan))
        price = cost(self.prepared.record, target.placement)
        peak = max(max(ranks) for ranks in price.device_bytes)
        self._progress.metrics.set_predicted(seconds=price.seconds, peak_bytes=peak)
        if difference(current, target.placement):
            return Outcome.DONE
        if target.reason in (PlacementReason.PLAN_APPLIED, PlacementReason.PINNED):
            self._in_force(PlacementReason.ALREADY_OPTIMAL, "the seed placement is the plan", target.note)
        return Outcome.KEEP

    def _apply(self) -> Outcome:
        session, target = self.prepared.session, self._target
        assert target is not None, "Solve comes before Apply"
        moves = difference(session.placement(), target.placement)
        try:
            apply(session.engine, moves, check=session.check, faults=self._settings.faults)
        except ApplyError as error:
            reason = PlacementReason.OUT_OF_MEMORY if error.out_of_memory else PlacementReason.APPLY_FAILED
            raise StartError(reason, str(error)) from error
        except UndoError as error:
            raise RollbackFailed(PlacementReason.FAILED, str(error)) from error
        self._in_force(target.reason, summary(target.placement), target.note)
        return Outcome.DONE

    def _in_force(self, reason: PlacementReason, message: str, note: str) -> None:
        text = f"{message}; {note}" if note else message
        self._progress.condition(PlacementCondition.APPLIED, "True", reason, text)

    def _validate(self) -> Outcome:
        assert self._proof is not None
        self._proof.prove(self._progress)
        return Outcome.DONE

    def _roll_back(self) -> Outcome:
        """Back to the seed placement, which the probe ran in; proven again before anything is served."""
        assert self._proof is not None and self._target is not None and self.error is not None
        session, failure, measured = self.prepared.session, self.error, self._proof.last
        if self._target.reason is PlacementReason.EXTRAPOLATED:
            raise self._nothing_fits(failure)
        text = "" if measured is None else bytes_text(measured.peak_bytes, measured.seconds)
        try:
            self._settings.faults.reach("rollback")
            apply(session.engine, difference(session.placement(), self.prepared.seed), check=session.check)
        except Exception as error:
            message = f"rolling back failed: {error}; it was to undo this: {failure}"
            raise RollbackFailed(PlacementReason.FAILED, message) from error
        given_up, kept = summary(self._target.placement), summary(self.prepared.seed)
        self._progress.rolled_back(failure.reason, str(failure), given_up, kept, text)
        self._progress.condition(PlacementCondition.APPLIED, "False", failure.reason, str(failure))
        try:
            self._proof.prove(self._progress)
        except StartError as error:
            message = f"the seed placement does not validate either: {error}; the planned one failed so: {failure}"
            raise StartError(PlacementReason.FAILED, message) from error
        return Outcome.DONE

    def _nothing_fits(self, failure: StartError) -> StartError:
        """The seed placement needs least of all, and it failed at the declared shape: say what would fit."""
        plan = solve(self.prepared.record)
        if plan.placement is None:
            reason, message = PlacementReason.INFEASIBLE, f"{infeasible_text(plan)}; {failure}"
        else:
            reason, message = failure.reason, f"{failure}; even with everything streamed, so declare a smaller shape"
        self._progress.condition(PlacementCondition.APPLIED, "False", reason, message)
        return StartError(reason, message)

    def _finish(self, phase: Phase) -> None:
        if phase == "Failed":
            self._progress.finish(phase, str(self.error))
            return
        self.prepared.session.engine.commit()
        assert self._proof is not None and self._target is not None
        self._proof.report(self._progress, self._target.plan if phase == "Ready" else None)
        self._progress.finish(phase, self._proof.sentence())
