"""Time on an emulated card: two streams whose seconds are computed, not waited for.

A tiny model on a busy machine has no meaningful wall-clock time, so the emulated card has a clock of its own. Compute
advances by what the stated card would need; a copy occupies the link from the later of its predecessor's end and the
event it waits for; compute slows by the stated contention exactly while a copy runs. This is PLANNING.md's recurrence
played out event by event, which is why a prediction can be checked to the microsecond, on any machine.

The host is taken to run ahead of the device, as it does on a GPU: issuing work costs nothing.
"""

from __future__ import annotations

from collections import deque


class VirtualClock:
    """The time of a compute stream and a copy stream, in seconds."""

    def __init__(self, contention: float) -> None:
        """``contention`` (>= 1) is the factor by which compute slows while a copy runs."""
        self.compute = 0.0
        self.waited = 0.0
        self._contention = contention
        self._link_free = 0.0
        self._copies: deque[tuple[float, float]] = deque()

    def advance(self, seconds: float) -> None:
        """Let compute work for what would take ``seconds`` on an idle link."""
        now, work = self.compute, seconds
        while work > 0:
            while self._copies and self._copies[0][1] <= now:
                self._copies.popleft()
            if not self._copies:
                now, work = now + work, 0.0
            elif now < (start := self._copies[0][0]):
                step = min(work, start - now)
                now, work = now + step, work - step
            else:
                room = (self._copies[0][1] - now) / self._contention
                if work <= room:
                    now, work = now + work * self._contention, 0.0
                else:
                    now, work = self._copies[0][1], work - room
        self.compute = now

    def copy(self, seconds: float, not_before: float) -> float:
        """Queue a copy of ``seconds`` on the link, not before a moment; returns the moment of its end."""
        start = max(self._link_free, not_before)
        self._link_free = start + seconds
        if self._copies and self._copies[-1][1] == start:
            self._copies[-1] = (self._copies[-1][0], self._link_free)
        else:
            self._copies.append((start, self._link_free))
        return self._link_free

    def settle(self) -> None:
        """Both streams come to rest: the host waits for the later one, and compute is not said to have stood still."""
        self.compute = max(self.compute, self._link_free)

    def wait(self, moment: float) -> None:
        """Let compute stand still until a moment, if that lies ahead."""
        if moment > self.compute:
            self.waited += moment - self.compute
            self.compute = moment
