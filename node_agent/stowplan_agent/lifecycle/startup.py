"""The start of one process, phase by phase, and its ends.

Each phase is a method that returns how it ended; `phases` says what comes next. Whatever goes wrong after the seed
placement was proven by the probe ends in that placement again, proven anew; where that fails too the door stays shut,
and where not even the weights come back the process must end.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Final

from stowplan_agent.lifecycle.adjustment import Adjustment
from stowplan_agent.lifecycle.deadlines import too_long
from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.phases import ENDS, Outcome, next_phase
from stowplan_agent.lifecycle.preparation import Preparation, Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.lifecycle.switch import THROWN, KillSwitch
from stowplan_agent.lifecycle.warm_start import WarmStart
from stowplan_agent.lifecycle.watchdog import Watchdog
from stowplan_agent.pipeline.request import Stopped
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
        switch: KillSwitch | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        """Nothing runs yet. ``stop`` is asked before each phase, after each step of a request and after each move."""
        self.preparation = preparation or Preparation(settings)
        self.preparation.stop = lambda: self._interruption() is not None
        self.error: StartError | None = None
        """Why the last failed phase failed."""
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._switch = switch or KillSwitch(thrown=settings.disabled)
        self._watchdog = Watchdog(settings.deadlines, progress.late)
        self._phase: Phase = "Pending"
        self._interrupted_by: Exception | None = None
        self.warm_start = WarmStart(settings, self.preparation, progress, self._switch)
        """The stored start of this one, if there is any: tried, or left for the next."""
        self._adjusting: Adjustment | None = None
        self._phases: dict[Phase, Callable[[], Outcome]] = {
            "Inventory": self._take_inventory,
            "Load": self.warm_start.load,
            "Warm": self.warm_start.warm,
            "Revalidate": self._revalidate,
            "Probe": self._probe,
            "WarmAgain": self._warm_again,
            "Solve": self._solve,
            "Apply": self._adjusting_by(Adjustment.apply),
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

    @property
    def _adjustment(self) -> Adjustment:
        assert self._adjusting is not None, "Solve comes before whatever adjusts"
        return self._adjusting

    def _attempt(self, phase: Phase) -> Outcome:
        """Run one phase; what it raises becomes `error`, without the traceback that would hold device memory."""
        self._phase, self._interrupted_by = phase, None
        self._progress.begin(phase, self._watchdog.deadline(phase))
        try:
            with self._watchdog.watching(phase), self._settings.faults.within(phase):
                outcome = self._phases[phase]()
            if outcome is not Outcome.STALE and isinstance(cause := self._forbidden(), StartError):
                raise cause
            return outcome
        except RollbackFailed as error:
            self._progress.finish("Failed", str(error))
            raise
        except Stopped:
            if not isinstance(self._interrupted_by, StartError):
                raise
            self.error = self._interrupted_by
        except StartError as error:
            self.error = StartError(error.reason, str(error))
        except Exception as error:
            # As text: whoever keeps a log's record would keep the traceback, and with it the request's tensors.
            _log.error("phase %s failed\n%s", phase, traceback.format_exc().rstrip())
            reason = PlacementReason.VALIDATION_FAILED if phase == "Validate" else PlacementReason.FAILED
            self.error = StartError(reason, f"{phase}: {type(error).__name__}: {error}")
        finally:
            self._progress.end(phase)
        _log.warning("phase %s failed (%s): %s", phase, self.error.reason, self.error)
        if phase not in UNDONE_BY_ROLLBACK:
            condition = PlacementCondition.APPLIED if phase == "Solve" else PlacementCondition.CALIBRATED
            self._progress.condition(condition, "False", self.error.reason, str(self.error))
        return Outcome.FAILED

    def _interruption(self) -> Exception | None:
        """Why the phase that runs should end now: asked to stop, past its deadline, or forbidden since it began."""
        cause = Stopped() if self._stop() else self._forbidden()
        self._interrupted_by = cause or self._interrupted_by
        return cause

    def _forbidden(self) -> StartError | None:
        if self._watchdog.late:
            message = too_long(self._phase, self._watchdog.deadline(self._phase))
            return StartError(PlacementReason.DEADLINE_EXCEEDED, message)
        adjusts = self._phase in ("Apply", "Validate") and self._adjustment.moves
        if adjusts and self._switch.thrown:
            return StartError(PlacementReason.RESIDENCY_DISABLED, f"{THROWN}: the seed placement is served")
        return None

    def _adjusting_by(self, act: Callable[[Adjustment], Outcome]) -> Callable[[], Outcome]:
        return lambda: act(self._adjustment)

    def _take_inventory(self) -> Outcome:
        self.preparation.take_inventory()
        self.warm_start.look_up()
        return Outcome.DONE

    def _revalidate(self) -> Outcome:
        try:
            outcome = self.warm_start.revalidate()
        except Stopped:
            return self.warm_start.interrupted(self._interrupted_by)
        cause = self._forbidden()
        return outcome if cause is None else self.warm_start.interrupted(cause)

    def _warm_again(self) -> Outcome:
        self.warm_start.bounded_digest = self.preparation.warm_again()
        return Outcome.DONE

    def _solve(self) -> Outcome:
        self._adjusting = Adjustment(self.prepared, self._settings, self._progress, self._switch, self._interruption)
        return self._adjusting.solve()

    def _validate(self) -> Outcome:
        self._adjustment.validate()
        self.warm_start.measure_step()
        return Outcome.DONE

    def _probe(self) -> Outcome:
        self.preparation.probe()
        prepared = self.prepared
        if prepared.record.extrapolated:
            reason = PlacementReason.EXTRAPOLATED
            message = "; ".join(prepared.record.provenance[1:])
        else:
            reason = PlacementReason.MEASURED
            shape = describe(prepared.reference_shape)
            message = f"{shape} take {prepared.reference.seconds:.3f} s with everything streamed"
        if self.warm_start.given_up:
            message = f"{message}; {self.warm_start.given_up}"
        self._progress.condition(PlacementCondition.CALIBRATED, "True", reason, message)
        return Outcome.DONE

    def _roll_back(self) -> Outcome:
        assert self.error is not None, "something failed, or there is nothing to undo"
        return self._adjustment.roll_back(self.error)

    def _finish(self, phase: Phase) -> None:
        if phase == "Failed":
            self._progress.finish(phase, str(self.error))
            return
        if self._adjusting is None:
            self._progress.finish(phase, self.warm_start.report())
            return
        self._progress.finish(phase, self._adjustment.report(planned=phase == "Ready"))
        if phase == "Ready":
            self.warm_start.keep(self._progress.status.plan, self._adjustment.measured)
