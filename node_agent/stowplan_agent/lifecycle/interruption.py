"""Why the phase that runs should end before its time: asked to stop, past its deadline, or forbidden since it began.

Asked between the steps of a request and between moves, where a phase can end in good order; the answer says what the
start makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stowplan_agent.lifecycle.deadlines import too_long
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.switch import THROWN, KillSwitch
from stowplan_agent.lifecycle.watchdog import Watchdog
from stowplan_agent.pipeline.request import Stopped
from stowplan_api.contract import PlacementReason
from stowplan_api.residency_placement import Phase

WAITED_FOR: Final[frozenset[Phase]] = frozenset({"Inventory", "Load"})
"""Phases that wait for a hub or for storage. Late, they are told of; what has come in the end is no worse for it."""


class Interruptions:
    """Those of one start."""

    def __init__(self, stop: Callable[[], bool], watchdog: Watchdog, switch: KillSwitch) -> None:
        """``stop``: whether the process is to end."""
        self.stop = stop
        self.switch = switch
        self.phase: Phase = "Pending"
        """The phase that runs."""
        self.adjusts: Callable[[], bool] = lambda: False
        """Whether that phase goes to, or proves, another placement than the seed one: what the kill switch forbids."""
        self.last: Exception | None = None
        """What `now` answered last in this phase, if it was anything."""
        self.overtaken: Callable[[], None] = lambda: None
        """Raises, between moves, where another rank has failed meanwhile."""
        self._watchdog = watchdog

    def begin(self, phase: Phase) -> None:
        """Another phase runs."""
        self.phase, self.last = phase, None

    def begin_again(self) -> None:
        """What the phase that runs has tried first was given up: it begins anew, with all of its seconds."""
        self.last = None
        self._watchdog.begin_again()

    def lengthen(self, deadlines: Mapping[Phase, float]) -> None:
        """The phases that come may take so many seconds, where that is more."""
        self._watchdog.lengthen(deadlines)

    def now(self) -> Exception | None:
        """`Stopped`, a `StartError`, or None to go on."""
        cause = Stopped() if self.stop() else self.forbidden()
        self.last = cause or self.last
        return cause

    def forbidden(self) -> StartError | None:
        """Why what this phase has done must not stand, if it must not."""
        if self._watchdog.late and self.phase not in WAITED_FOR:
            message = too_long(self.phase, self._watchdog.deadline(self.phase))
            return StartError(PlacementReason.DEADLINE_EXCEEDED, message)
        if self.switch.thrown and self.phase in ("Apply", "Validate") and self.adjusts():
            return StartError(PlacementReason.RESIDENCY_DISABLED, f"{THROWN}: the seed placement is served")
        return None
