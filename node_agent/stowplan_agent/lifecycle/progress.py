"""Saying what the start does: one place that turns phases and facts into status, door, metrics and log."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from stowplan_agent.cluster.reporter import Reporter
from stowplan_agent.lifecycle.deadlines import too_long
from stowplan_agent.lifecycle.phases import SERVING
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.drift import Drift
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_api.conditions import Status, set_condition, shorten, timestamp
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.residency_placement import Phase, PhaseStatus, ResidencyPlacementStatus, Rollback

_log = logging.getLogger(__name__)
KEPT_ROLLBACKS = 10


class Progress:
    """The agent's own account of this boot. Every change is reported at once; equal states are not written twice."""

    def __init__(
        self,
        reporter: Reporter,
        door: Door,
        metrics: AgentMetrics,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Continues from the reporter's first status of this boot."""
        self.door = door
        self.metrics = metrics
        self._reporter = reporter
        self._generation = reporter.read_spec().generation
        self._status: ResidencyPlacementStatus = reporter.status
        self._now = now
        self._monotonic = monotonic
        self._began = monotonic()
        self._warnings: list[str] = []
        self._lock = threading.RLock()  # a deadline's timer and the worker that serves have something to say as well

    @property
    def status(self) -> ResidencyPlacementStatus:
        """What was reported last."""
        return self._status

    def begin(self, phase: Phase, deadline: float = math.inf) -> None:
        """A phase begins, which may take ``deadline`` seconds."""
        self._began = self._monotonic()
        self.door.phase = phase
        self.door.message = f"the placement of this boot is not validated yet: {phase}"
        self.metrics.set_phase_deadline(phase, deadline)
        _log.info("phase %s, which may take %.0f s", phase, deadline)
        started = PhaseStatus(name=phase, started_at=timestamp(self._now()))
        self._set(phase=phase, phases=(*self._status.phases, started))

    def end(self, phase: Phase) -> None:
        """The phase has ended, however it ended."""
        seconds = self.elapsed()
        self.metrics.set_phase_duration(phase, seconds)
        last = self._status.phases[-1].model_copy(update={"milliseconds": round(seconds * 1000)})
        self._set(phases=(*self._status.phases[:-1], last))

    def elapsed(self) -> float:
        """Seconds since the phase began."""
        return self._monotonic() - self._began

    def facts(self, **fields: Any) -> None:
        """Set fields of the status."""
        self._set(**fields)

    def warn(self, sentence: str) -> None:
        """Something that stops nothing, for people: in the log, and with whatever is said of Applied from now on."""
        _log.warning("%s", sentence)
        self._warnings.append(sentence)

    def condition(self, type_: PlacementCondition, status: Status, reason: PlacementReason, message: str) -> None:
        """Set one condition."""
        if type_ is PlacementCondition.APPLIED:
            message = "; ".join((message, *self._warnings))
        with self._lock:
            conditions = set_condition(
                self._status.conditions, type_, status, reason, message, generation=self._generation, now=self._now()
            )
            self._set(conditions=conditions)

    def late(self, phase: Phase, seconds: float) -> None:
        """A phase is past its deadline of so many seconds, and may never end: say so at once."""
        message = too_long(phase, seconds)
        _log.error("%s", message)
        self.door.message = message
        self.condition(PlacementCondition.VALIDATED, "False", PlacementReason.DEADLINE_EXCEEDED, message)
        self.condition(PlacementCondition.READY, "False", PlacementReason.DEADLINE_EXCEEDED, message)

    def drifted(self, drift: Drift) -> None:
        """Served requests take, or no longer take, other seconds or bytes than was promised."""
        reason = PlacementReason.AS_PREDICTED
        for verdict, off in ((drift.peak, PlacementReason.PEAK_OFF), (drift.seconds, PlacementReason.SECONDS_OFF)):
            if verdict is not None and verdict.drifted:
                reason = off
        status: Status = "False" if reason is PlacementReason.AS_PREDICTED else "True"
        _log.log(logging.WARNING if status == "True" else logging.INFO, "%s", drift.sentence())
        self.condition(PlacementCondition.DRIFTED, status, reason, drift.sentence())

    def rolled_back(self, reason: PlacementReason, message: str, old: str, new: str, measured: str) -> None:
        """A placement was taken back: ``old`` is what was given up, ``new`` what is in force."""
        _log.warning("rolled back (%s): %s", reason, message)
        self.metrics.count_rollback(reason)
        rollback = Rollback(
            time=timestamp(self._now()),
            reason=reason,
            message=shorten(message),
            from_=shorten(old),
            to=shorten(new),
            measured=shorten(measured),
        )
        self._set(rollbacks=(*self._status.rollbacks, rollback)[-KEPT_ROLLBACKS:])
        self.condition(PlacementCondition.ROLLED_BACK, "True", reason, message)

    def finish(self, phase: Phase, message: str = "") -> None:
        """The start is over. The door stays shut until `open_door`, and for good where nothing was proven."""
        self.door.phase = phase
        self._set(phase=phase)
        proven = phase in SERVING
        if proven:
            reason = PlacementReason.PROVEN if phase == "Ready" else PlacementReason.PROVEN_AFTER_ROLLBACK
            self.condition(PlacementCondition.VALIDATED, "True", reason, message)
            if phase == "Ready":
                self.condition(PlacementCondition.ROLLED_BACK, "False", PlacementReason.NO_ROLLBACK, "")
        else:
            self.door.close(message)
            self.condition(PlacementCondition.VALIDATED, "False", PlacementReason.FAILED, message)
            self.condition(PlacementCondition.READY, "False", PlacementReason.FAILED, message)
        self.metrics.set_validated(proven)
        _log.info("start ended: %s %s", phase, message)

    def open_door(self) -> None:
        """The queue serves: let requests in."""
        self.door.open_up()
        self.condition(PlacementCondition.READY, "True", PlacementReason.SERVING, "requests are served")

    def _set(self, **fields: Any) -> None:
        with self._lock:
            status = self._status.model_copy(update={"observed_generation": self._generation, **fields})
            if status == self._status:
                return
            self._status = status
            try:
                sys.audit("stowplan.report")
                self._reporter.report(status)
            except Exception as error:  # nothing that is said of a start may stop it; the next status says it as well
                _log.warning("the status cannot be reported now: %s", error)
