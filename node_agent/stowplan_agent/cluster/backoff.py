"""How long to wait before the API server is asked again.

Exponential with jitter, so that a fleet of pods does not come back at one moment; bounded, so that a pod is heard soon
after an outage; without end, because a pod that serves must not die of an API server that is away.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """The waits after failures in a row."""

    first: float = 0.2
    """Seconds after the first failure."""
    most: float = 30.0
    """Seconds after many, and the most that a Retry-After is followed."""
    most_missing: float = 5.0
    """Seconds after many, while the object is not there yet: the pod waits for nothing but that."""

    def delay(self, failures: int, jitter: float, *, missing: bool = False, asked: float | None = None) -> float:
        """Seconds to wait after the ``failures``-th failure in a row (from 1).

        ``jitter`` in [0, 1) takes off up to half; ``missing`` means the object does not exist; ``asked`` is the
        server's Retry-After in seconds, which is waited for in full.
        """
        limit = self.most_missing if missing else self.most
        delay = min(limit, self.first * float(2 ** min(failures - 1, 32))) * (1 - jitter / 2)
        return max(delay, min(asked or 0.0, self.most))
