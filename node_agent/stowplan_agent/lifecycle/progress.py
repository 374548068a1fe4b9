"""Saying what the start does: one place that turns phases and facts into status, door, metrics and log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from stowplan_agent.cluster.reporter import Reporter
from stowplan_agent.lifecycle.phases import SERVING
from stowplan_agent.serving.door import Door
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

    @property
    def status(self) -> ResidencyPlacementStatus:
        """What was reported last."""
        return self._status

    def begin(self, phase: Phase) -> None:
        """A phase begins."""
        self._began = self._monotonic()
        self.door.phase = phase
        self.door.message = f"the placement of this boot is not validated yet: {phase}"
        _log.info("phase %s", phase)
        started = PhaseStatus(name=phase, started_at=timestamp(self._now()))
        self._set(phase=phase, phases=(*self._status.phases, started))

    def end(self, phase: Phase) -> None:
        """The phase has ended, however it ended."""
        seconds = self._monotonic() - self._began
        self.metrics.set_phase_duration(phase, seconds)
        last = self._status.phases[-1].model_copy(update={"milliseconds": round(seconds * 1000)})
        self._set(phases=(*self._status.phases[:-1], last))

    def facts(self, **fields: Any) -> None:
        """Set fields of the status."""
        self._set(**fields)

    def condition(self, type_: PlacementCondition, status: Status, reason: PlacementReason, message: str) -> None:
        """Set one condition."""
        conditions = set_condition(
            self._status.conditions, type_, status, reason, message, generation=self._generation, now=self._now()
        )
        self._set(conditions=conditions)

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
        status = self._status.model_copy(update={"observed_generation": self._generation, **fields})
        if status != self._status:
            self._status = status
            self._reporter.report(status)
