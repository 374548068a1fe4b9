"""Holds each phase to its deadline.

A phase cannot be broken off from outside: it may be inside a driver. So what is late is asked between steps and moves,
where a phase can end in good order; and where it cannot, a timer of its own says at once, to whoever reads the status,
which phase is hanging. The door is shut all the while.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from stowplan_api.residency_placement import Phase

Late = Callable[[Phase, float], None]
"""Told once, from the timer's thread, that a phase is past its deadline of so many seconds."""


class Timer(Protocol):
    """What `threading.Timer` is."""

    daemon: bool

    def start(self) -> None:
        """Begin to count."""

    def cancel(self) -> None:
        """Do not call."""


class Watchdog:
    """Watches one phase at a time."""

    def __init__(
        self,
        deadlines: Mapping[Phase, float],
        on_late: Late,
        timer: Callable[[float, Callable[[], None]], Timer] = threading.Timer,
    ) -> None:
        """``timer`` makes what calls back after so many seconds."""
        self._deadlines = deadlines
        self._on_late = on_late
        self._timer = timer
        self._lock = threading.Lock()
        self._watched: Phase | None = None
        self._running: Timer | None = None
        self._count = 0
        """Of timers that were begun: one that was replaced has nothing to say any more."""
        self.late = False
        """Whether the phase that is watched, or the last one, is past its deadline."""

    def deadline(self, phase: Phase) -> float:
        """Seconds that the phase may take; infinite where it may take any."""
        return self._deadlines.get(phase, math.inf)

    @contextmanager
    def watching(self, phase: Phase) -> Iterator[None]:
        """Within it, this phase runs."""
        self._begin(phase)
        try:
            yield
        finally:
            with self._lock:  # one that fires just now has spoken before the phase is over, or never speaks
                self._end()

    def begin_again(self) -> None:
        """The phase that is watched has all of its seconds again: what it tried first was given up."""
        if self._watched is not None:
            self._begin(self._watched)

    def lengthen(self, deadlines: Mapping[Phase, float]) -> None:
        """Phases that begin from now on may take so many seconds, where that is more than they may take now."""
        known = self._deadlines
        self._deadlines = {phase: max(seconds, deadlines.get(phase, 0.0)) for phase, seconds in known.items()}

    def _begin(self, phase: Phase) -> None:
        seconds = self.deadline(phase)
        with self._lock:
            self._end()
            self._watched, self.late = phase, False
            self._count += 1
            number = self._count
            if seconds == math.inf:
                return
            self._running = self._timer(seconds, lambda: self._fire(number, phase, seconds))
            self._running.daemon = True
            self._running.start()

    def _end(self) -> None:
        if self._running is not None:
            self._running.cancel()
        self._watched, self._running = None, None

    def _fire(self, number: int, phase: Phase, seconds: float) -> None:
        with self._lock:
            if self._watched is None or self._count != number:
                return
            self.late = True
            self._on_late(phase, seconds)
