"""The start of one process, phase by phase, and its ends.

Each phase's work says how it ended; `phases` says what comes next. Whatever goes wrong after the seed
placement was proven by the probe ends in that placement again, proven anew; where that fails too the door stays shut,
and where not even the weights come back the process must end.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Final

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError, in_words
from stowplan_agent.lifecycle.interruption import Interruptions
from stowplan_agent.lifecycle.phase_work import PhaseWork
from stowplan_agent.lifecycle.phases import ENDS, Outcome, next_phase
from stowplan_agent.lifecycle.preparation import Preparation, Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.switch import THROWN, KillSwitch
from stowplan_agent.lifecycle.warm_start import WarmStart
from stowplan_agent.lifecycle.watchdog import Watchdog
from stowplan_agent.pipeline.request import Stopped
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.residency_placement import Phase

_log = logging.getLogger(__name__)
UNDONE_BY_ROLLBACK: Final[frozenset[Phase]] = frozenset({"Apply", "Validate", "RollBack"})
"""Phases whose failure is reported by the rollback; any other's is the answer to what it was to find out."""

PROOFS: Final[frozenset[Phase]] = frozenset({"Validate", "Revalidate"})
"""Phases behind which a plan serves."""


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
        switch = switch or KillSwitch(thrown=settings.disabled)
        self._settings = settings
        self._progress = progress
        self._watchdog = Watchdog(settings.deadlines, progress.late)
        self._interruptions = Interruptions(stop, self._watchdog, switch)
        self.preparation = preparation or Preparation(settings)
        self.preparation.stop = lambda: self._interruptions.now() is not None
        self._work = PhaseWork(settings, self.preparation, progress, self._interruptions)

    @property
    def error(self) -> StartError | None:
        """Why the phase that failed last did."""
        return self._work.failure

    @property
    def warm_start(self) -> WarmStart:
        """The stored start of this one, if there is any: tried, or left for the next."""
        return self._work.warm_start

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
            if self._interruptions.stop():
                raise Stopped
            outcome = self._attempt(phase)
            if phase == until and outcome is not Outcome.FAILED:
                return phase
            phase = next_phase(phase, outcome)
        self._finish(phase)
        return phase

    @property
    def serves_a_plan(self) -> bool:
        """Whether what serves is another placement than the seed one."""
        return self._interruptions.phase in PROOFS and self.prepared.session.placement() != self.prepared.seed

    def recall(self) -> Phase:
        """After Ready, with no request running: back to the seed placement, proven anew; the phase reached.

        Raises `RollbackFailed`.
        """
        message = f"{THROWN} while the plan served"
        self._progress.condition(PlacementCondition.VALIDATED, "False", PlacementReason.RESIDENCY_DISABLED, message)
        self._progress.condition(PlacementCondition.READY, "False", PlacementReason.RESIDENCY_DISABLED, message)
        self._work.prepare_recall(StartError(PlacementReason.RESIDENCY_DISABLED, message))
        phase = next_phase("Ready", Outcome.RECALLED)
        phase = next_phase(phase, self._attempt(phase))
        self._finish(phase)
        return phase

    def close(self) -> None:
        """Give device and pipeline back. Nothing serves afterwards."""
        self.preparation.close()

    def _attempt(self, phase: Phase, work: Callable[[], Outcome] | None = None) -> Outcome:
        """Run one phase; what it raises becomes `error`, without the traceback that would hold device memory.

        ``work`` in place of the phase's own.
        """
        self._interruptions.begin(phase)
        self._progress.begin(phase, self._watchdog.deadline(phase))
        try:
            with self._watchdog.watching(phase), self._settings.faults.within(phase):
                outcome = self._work.do(phase) if work is None else work()
            cause = None if outcome is Outcome.STALE else self._interruptions.forbidden()
            if cause is None:
                return outcome
            failure = cause
        except RollbackFailed as error:
            self._progress.finish("Failed", str(error))
            raise
        except Stopped:
            if not isinstance(self._interruptions.last, StartError):
                raise
            failure = self._interruptions.last
        except StartError as error:
            failure = StartError(error.reason, str(error))
        except Exception as error:
            # As text: whoever keeps a log's record would keep the traceback, and with it the request's tensors.
            _log.error("phase %s failed\n%s", phase, traceback.format_exc().rstrip())
            reason = PlacementReason.VALIDATION_FAILED if phase == "Validate" else PlacementReason.FAILED
            failure = StartError(reason, f"{phase}: {in_words(error)}")
        finally:
            self._progress.end(phase)
        self._fail(phase, failure)
        return Outcome.FAILED

    def _fail(self, phase: Phase, failure: StartError) -> None:
        self._work.failure = failure
        _log.warning("phase %s failed (%s): %s", phase, failure.reason, failure)
        if phase not in UNDONE_BY_ROLLBACK:
            condition = PlacementCondition.APPLIED if phase == "Solve" else PlacementCondition.CALIBRATED
            self._progress.condition(condition, "False", failure.reason, str(failure))

    def _finish(self, phase: Phase) -> None:
        if phase == "Failed":
            self._progress.finish(phase, str(self.error))
            return
        self._progress.finish(phase, self._work.report(phase))
