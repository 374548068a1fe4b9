"""How many Events one pod may cause: an agent that flaps, or lies about boots and rollbacks, must not fill the cluster.

The first ones are told whatever they are; after them one more becomes free every half minute. A pod that starts, rolls
back ten times and restarts a few times stays below it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from stowplan_operator.remembered import Remembered

BURST: Final = 40
EVERY: Final = timedelta(seconds=30)
_PODS: Final = 10_000


class Allowance:
    """A bucket of tokens a pod, kept as the time at which it will be full again."""

    def __init__(self) -> None:
        self._full_at: Remembered[str, datetime] = Remembered(_PODS)

    def has(self, pod: str, now: datetime) -> bool:
        """Whether one more Event of this pod (by uid) may be posted now."""
        return self._after_one(pod, now) - now <= BURST * EVERY

    def take(self, pod: str, now: datetime) -> None:
        """One was posted. One that failed is none: it will be tried again."""
        self._full_at.put(pod, self._after_one(pod, now))

    def _after_one(self, pod: str, now: datetime) -> datetime:
        known = self._full_at.get(pod)
        return (now if known is None else max(now, known)) + EVERY
