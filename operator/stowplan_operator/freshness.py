"""How old the newest word about each kind is: what the liveness probe asks.

A watch that is open and silent looks like a quiet cluster. A list settles it, so a kind is fresh when an event or a
list of it came lately; when even lists stop arriving, the process is of no use and should be restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stowplan_operator.kinds import WATCHED, Kind
from stowplan_operator.metrics import Metrics


class Freshness:
    """Times of the newest event or list of each kind, on a monotonic clock."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._heard = dict.fromkeys(WATCHED, clock())

    def heard(self, kind: Kind) -> None:
        """An event or a list of this kind has arrived."""
        self._heard[kind] = self._clock()
        self._metrics.last_event.labels(kind=kind.kind).set_to_current_time()

    def complaint(self, limit: float) -> str:
        """One sentence when some kind was not heard of for ``limit`` seconds; empty when all is well."""
        kind = min(self._heard, key=lambda kind: self._heard[kind])
        age = self._clock() - self._heard[kind]
        if age <= limit:
            return ""
        return f"no event or list of {kind.kind} for {age:.0f} s (limit {limit:.0f} s); the API server does not answer"
