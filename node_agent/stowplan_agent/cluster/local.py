"""Reports to a person at a terminal, where there is no cluster: one line a phase, on standard error."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

from stowplan_agent.cluster.boot import first_status
from stowplan_api.residency_placement import (
    Agent,
    Limits,
    PodReference,
    ResidencyPlacementSpec,
    ResidencyPlacementStatus,
)

_LOCAL = "local"


class LocalReporter:
    """Prints each phase as it ends, with its seconds; on a terminal also the one that runs."""

    def __init__(self, agent: Agent, memory_bytes: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._spec = ResidencyPlacementSpec(
            deployment=_LOCAL,
            pod=PodReference(name=_LOCAL, uid=_LOCAL),
            generation=1,
            limits=Limits(memory_bytes=memory_bytes),
        )
        self._status = first_status(agent, generation=1, former=None, now=datetime.now(UTC))

    def read_spec(self, timeout: float | None = None) -> ResidencyPlacementSpec:
        """A spec that stands for this process; there at once."""
        return self._spec

    @property
    def status(self) -> ResidencyPlacementStatus:
        """The newest status."""
        return self._status

    def report(self, status: ResidencyPlacementStatus) -> None:
        """Print what is new in it: phases that ended, rollbacks, the phase that runs."""
        before, self._status = self._status, status
        seen = {(phase.name, phase.started_at) for phase in before.phases if phase.milliseconds is not None}
        for phase in status.phases:
            if phase.milliseconds is not None and (phase.name, phase.started_at) not in seen:
                self._line(f"{phase.name:<10} {phase.milliseconds / 1000:8.2f} s")
        for rollback in status.rollbacks:
            if rollback not in before.rollbacks:
                self._line(f"rolled back ({rollback.reason}): {rollback.message}")
        if status.phase != before.phase and self._stream.isatty():
            self._stream.write(f"\r\x1b[K{status.phase} ...")
            self._stream.flush()

    def flush(self, timeout: float) -> bool:
        """Nothing waits here."""
        return True

    def close(self, timeout: float = 5.0) -> None:
        """End the line of the phase that runs."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self, text: str) -> None:
        start = "\r\x1b[K" if self._stream.isatty() else ""
        self._stream.write(f"{start}{text}\n")
        self._stream.flush()
