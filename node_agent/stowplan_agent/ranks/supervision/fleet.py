"""What happens to all ranks when something happens to one: a state machine of values, without processes or a clock.

The ranks of a replica live and end together. One that fails has all others asked to end, and killed if they have not
within a grace: a rank that waits in a collective for one that is gone would wait for ever. One that ends without an
error gives the others a while to end as well. Every state but that in which all run and nobody was asked has a
deadline.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Final

from stowplan_agent.ranks.supervision.endings import Ending, signal_name

FORWARDED_ONLY: Final = frozenset({signal.SIGUSR1})
"""Signals that ask for no end: the kill switch."""


@dataclass(frozen=True)
class Grace:
    """Seconds: for the others when one has failed; for all when asked to stop, and when one has ended by itself."""

    after_failure: float = 5.0
    after_request: float = 25.0


@dataclass(frozen=True)
class Send:
    """To be done: send a signal to a rank's process, and to what it has started."""

    rank: int
    signal: int


@dataclass(frozen=True)
class Release:
    """To be done: let no stream wait for another rank any more (`Board.release`)."""


Action = Send | Release


@dataclass(frozen=True)
class Fleet:
    """All ranks. Each method returns the next state, and what is to be done for it."""

    running: frozenset[int]
    grace: Grace = Grace()
    cause: str | None = None
    """Why all are ended, if that is not on request: one sentence."""
    code: int = 0
    """The exit code of all together, once `over`."""
    asked: int | None = None
    deadline: float | None = None
    killed: bool = False

    @property
    def over(self) -> bool:
        """Whether no rank runs any more."""
        return not self.running

    def ended(self, ending: Ending, now: float) -> tuple[Fleet, tuple[Action, ...]]:
        """A rank's process is over."""
        if ending.rank not in self.running:
            return self, ()
        left = replace(self, running=self.running - {ending.rank})
        if self.cause is not None or self.killed:
            return left, ()
        if ending.clean:
            until = self.deadline if self.deadline is not None else now + self.grace.after_request
            return replace(left, deadline=until), ()
        if self.asked is not None and ending.code == -self.asked:
            return replace(left, code=left.code or ending.exit_code), ()
        others = " and the other ranks are ended too" if left.running else ""
        return left._fail(f"{ending.sentence()};{others}" if others else ending.sentence(), ending.exit_code, now)

    def failed(self, cause: str, code: int, now: float) -> tuple[Fleet, tuple[Action, ...]]:
        """The ranks cannot go on together, though each of them lives: an agreement that ended so."""
        return (self, ()) if self.cause is not None else self._fail(cause, code, now)

    def hear(self, number: int, now: float) -> tuple[Fleet, tuple[Action, ...]]:
        """The supervisor was sent a signal: every rank gets it."""
        sends = tuple(Send(rank, number) for rank in sorted(self.running))
        if number in FORWARDED_ONLY or self.asked is not None or self.cause is not None:
            return self, sends
        until = now + self.grace.after_request
        return replace(
            self, asked=number, deadline=until if self.deadline is None else min(until, self.deadline)
        ), sends

    def look(self, now: float) -> tuple[Fleet, tuple[Action, ...]]:
        """Time has passed."""
        if self.deadline is None or now < self.deadline or self.killed or self.over:
            return self, ()
        cause, code = self.cause, self.code
        if cause is None:
            late = ", ".join(map(str, sorted(self.running)))
            why = f"being sent {signal_name(self.asked)}" if self.asked is not None else "another rank's end"
            cause, code = f"rank {late} did not end within {self.grace.after_request:g} s of {why}, and was killed", 1
        kills = tuple(Send(rank, signal.SIGKILL) for rank in sorted(self.running))
        return replace(self, cause=cause, code=code, killed=True), (Release(), *kills)

    def _fail(self, cause: str, code: int, now: float) -> tuple[Fleet, tuple[Action, ...]]:
        until = now + self.grace.after_failure
        until = until if self.deadline is None else min(until, self.deadline)
        sends = tuple(Send(rank, signal.SIGTERM) for rank in sorted(self.running))
        return replace(self, cause=cause, code=code, deadline=until), (Release(), *sends)
