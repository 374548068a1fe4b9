"""The start of one process, phase by phase, and its ends.

Each phase is a method that returns how it ended; `phases` says what comes next. Whatever goes wrong after the seed
placement was proven by the probe ends in that placement again, proven anew; where that fails too the door stays shut,
and where not even the weights come back the process must end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from stowplan_agent.lifecycle.adjustment import Adjustment
from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.phases import ENDS, Outcome, next_phase
from stowplan_agent.lifecycle.preparation import Preparation, Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
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
        preparation: Preparation | None = None,
    ) -> None:
        """Nothing runs yet. ``stop`` is asked before each phase, and after each step of a request."""
        self.preparation = preparation or Preparation(settings, stop)
        self.error: StartError | None = None
        """Why the last failed phase failed."""
        self._settings = settings
        self._progress = progress
        self._stop = stop
        self._adjusting: Adjustment | None = None
        self._phases: dict[Phase, Callable[[], Outcome]] = {
            "Inventory": self._done(self.preparation.take_inventory),
            "Load": self._done(self.preparation.load),
            "Warm": self._done(self.preparation.warm),
            "Probe": self._probe,
            "WarmAgain": self._done(self.preparation.warm_again),
            "Solve": self._adjusting_by(Adjustment.solve),
            "Apply": self._adjusting_by(Adjustment.apply),
            "Validate": self._adjusting_by(Adjustment.validate),
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
        assert self._adjusting is not None, "Probe comes before whatever adjusts"
        return self._adjusting

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

    def _adjusting_by(self, act: Callable[[Adjustment], Outcome]) -> Callable[[], Outcome]:
        return lambda: act(self._adjustment)

    def _probe(self) -> Outcome:
        self.preparation.probe()
        prepared = self.prepared
        self._adjusting = Adjustment(prepared, self._settings, self._progress)
        if prepared.record.extrapolated:
            reason = PlacementReason.EXTRAPOLATED
            message = "; ".join(prepared.record.provenance[1:])
        else:
            reason = PlacementReason.MEASURED
            shape = describe(prepared.reference_shape)
            message = f"{shape} take {prepared.reference.seconds:.3f} s with everything streamed"
        self._progress.condition(PlacementCondition.CALIBRATED, "True", reason, message)
        return Outcome.DONE

    def _roll_back(self) -> Outcome:
        assert self.error is not None, "something failed, or there is nothing to undo"
        return self._adjustment.roll_back(self.error)

    def _finish(self, phase: Phase) -> None:
        if phase == "Failed":
            self._progress.finish(phase, str(self.error))
            return
        self._progress.finish(phase, self._adjustment.commit(planned=phase == "Ready"))
