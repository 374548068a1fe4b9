"""How often something may be done for one pod or deployment: so many times at once, and then one more now and then.

An agent that flaps, or lies about boots and rollbacks, must not fill the cluster with Events, nor keep its API server
busy with a gate that opens and closes. A pod that starts, rolls back ten times and restarts a few times stays below it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from stowplan_operator.decide import GateWrite
from stowplan_operator.remembered import Remembered

_NAMES: Final = 10_000


class Allowance:
    """A bucket of ``burst`` tokens a name, of which one comes back ``every`` so often: kept as the time it is full."""

    def __init__(self, burst: int, every: timedelta) -> None:
        self._burst = burst
        self._every = every
        self._full_at: Remembered[str, datetime] = Remembered(_NAMES)

    def wait(self, name: str, now: datetime) -> float:
        """Seconds until it may be done once more; 0 when it may be now."""
        return max(0.0, (self._after_one(name, now) - now - self._burst * self._every).total_seconds())

    def take(self, name: str, now: datetime) -> None:
        """It was done. What failed was not: it will be tried again."""
        self._full_at.put(name, self._after_one(name, now))

    def _after_one(self, name: str, now: datetime) -> datetime:
        known = self._full_at.get(name)
        return (now if known is None else max(now, known)) + self._every


class Allowances:
    """What the operator's writes are held to. Whatever closes a gate, or takes back that something serves, is not."""

    def __init__(self) -> None:
        self.events = Allowance(40, timedelta(seconds=30))
        """By pod."""
        self.openings = Allowance(30, timedelta(seconds=10))
        """By pod."""
        self.words = Allowance(30, timedelta(seconds=10))
        """By pod: what a gate says while it stays as it is. Apart, so that no tale of progress holds up an opening."""
        self.statuses = Allowance(60, timedelta(seconds=1))
        """By deployment."""

    def of_gate(self, write: GateWrite) -> Allowance | None:
        """What a write of a gate is held to; None where it closes one that is not known to be closed."""
        old = write.patch.pod.gate
        before = None if old is None else old.status
        if write.patch.gate.open:
            return self.words if before == "True" else self.openings
        return self.words if before == "False" else None
