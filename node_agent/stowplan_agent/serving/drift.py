"""Do requests still take what was promised? A judgement over the last of them, with hysteresis; pure but for the watch.

A plan is as good as its record, and a card that throttles, a neighbour on the link or a new driver makes the record a
lie. One slow request says nothing, so the median of the last ones is judged; and what was called drift stays drift
until it is clearly gone, so that a value on the border does not ring at every request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Protocol

WINDOW: Final = 16
"""Requests that are looked at."""
LEAST: Final = 5
"""Requests without which nothing is said."""
OFF_BY: Final = 0.10
"""Issue and alerts: drift is a median off the promise by more than this share, either way."""
BACK_WITHIN: Final = 0.07
"""It is over when the median is within this share again."""


@dataclass(frozen=True)
class Verdict:
    """What the last requests say of one promise."""

    drifted: bool
    share: float
    """Median of measured over promised, less 1: 0.2 is a fifth more than promised."""


def judge(ratios: Sequence[float], before: bool | None) -> Verdict | None:
    """The verdict over ratios of measured to promised; None for too few of them. ``before``: what it was until now."""
    if len(ratios) < LEAST:
        return None
    middle, by = median(ratios), BACK_WITHIN if before else OFF_BY
    # Not by the difference from 1, which rounding makes a little more than 0.1 of 1.1 s measured and 1 promised.
    return Verdict(not 1 - by <= middle <= 1 + by, middle - 1)


@dataclass(frozen=True)
class Drift:
    """What there is to say: of seconds and of peaks. None where too few requests had a promise."""

    seconds: Verdict | None = None
    peak: Verdict | None = None

    def sentence(self) -> str:
        """For people: what is off, and by how much."""
        parts = [
            f"{name} are {abs(verdict.share):.0%} {'above' if verdict.share > 0 else 'below'} what was promised"
            for name, verdict in (("seconds", self.seconds), ("peaks of device memory", self.peak))
            if verdict is not None and verdict.drifted
        ]
        if not parts:
            return f"the last requests took what was promised, within {OFF_BY:.0%}"
        return f"of the last {WINDOW} requests, {' and '.join(parts)}; restart the pod to measure and plan anew"

    @property
    def flags(self) -> tuple[bool | None, bool | None]:
        """Drifted or not, of seconds and of peaks."""
        return (
            None if self.seconds is None else self.seconds.drifted,
            None if self.peak is None else self.peak.drifted,
        )


class Gauges(Protocol):
    """Where numbers go."""

    def set_drift(self, drift: Drift) -> None:
        """After each request that had a promise."""


class DriftWatch:
    """Keeps the last ratios. Called on the one thread that runs requests."""

    def __init__(self, gauges: Gauges, on_change: Callable[[Drift], None] = lambda _: None) -> None:
        """``on_change`` hears the first verdict, and each one that says something else than the one before."""
        self._gauges = gauges
        self._on_change = on_change
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._peaks: deque[float] = deque(maxlen=WINDOW)
        self.drift = Drift()
        """What the last requests say."""

    def observe(self, *, seconds_ratio: float | None, peak_ratio: float | None) -> None:
        """One request that ended well: measured over promised; None for what nothing was promised of."""
        for ratio, window in ((seconds_ratio, self._seconds), (peak_ratio, self._peaks)):
            if ratio is not None:
                window.append(ratio)
        before = self.drift
        seconds, peak = before.flags
        self.drift = Drift(judge(self._seconds, seconds), judge(self._peaks, peak))
        self._gauges.set_drift(self.drift)
        if self.drift.flags != before.flags:
            self._on_change(self.drift)
