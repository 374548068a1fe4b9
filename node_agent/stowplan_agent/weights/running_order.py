"""In which order a component's layers really run: not the order in which its modules are listed.

A UNet lists down, up, mid and runs down, mid, up; a vision-language encoder lists a vision tower that no text request
calls. So the order is learned from what runs, one for each entry (``encode`` runs other layers than ``decode``), and
what one interval teaches is where the ring of the next one begins. It is kept by key: a rewrite may replace units.

What an own interval teaches: the layers that were entered in it, in the order in which they were entered for the first
time, except that a layer that joins in a later call stands behind the layer that was entered just before it. Therefore
a pass that skips layers takes none of them away, a pass that repeats some changes nothing, and where passes differ in
order the first decides. A layer that was not entered at all is not in the order, until it is entered again. An interval
in which an exception left the component teaches nothing.
"""

from __future__ import annotations

import sys

from stowplan_agent.weights.keyed_units import KeyedUnits, UnitKey
from stowplan_agent.weights.unit import Unit


class RunningOrder:
    """What the last interval taught, and what the present one has shown so far; constant work a layer."""

    def __init__(self) -> None:
        """Nothing has been seen."""
        self._learned: dict[str, tuple[UnitKey, ...]] = {}
        self._entry: str | None = None
        self._in_first_call = True
        self._latest: Unit | None = None
        """Behind which layer the next one joins."""
        self._following: dict[Unit | None, Unit | None] = {}
        """For each layer seen in this interval the one behind it; the first is behind None, the last before None."""

    def of(self, entry: str, units: KeyedUnits) -> list[Unit] | None:
        """The layers that an interval beginning with this entry is expected to run; None before one has been seen."""
        keys = self._learned.get(entry)
        return None if keys is None else [units.unit(key) for key in keys]

    def begin(self, entry: str) -> None:
        """An own interval begins with this entry."""
        self._entry, self._in_first_call, self._latest, self._following = entry, True, None, {None: None}

    def enter(self, unit: Unit) -> None:
        """A layer is entered; outside own intervals that is nobody's order."""
        if self._entry is None:
            return
        joins = unit not in self._following
        if joins:
            self._following[unit] = self._following[self._latest]
            self._following[self._latest] = unit
        if joins or not self._in_first_call:  # in the first call, one that runs again is followed by nothing new
            self._latest = unit

    def leave(self) -> None:
        """A call of the component has returned or raised: after an exception, the interval is no example."""
        if sys.exception() is not None:  # whoever says that a call is over says it while the exception is handled
            self._forget()
        self._in_first_call = False

    def end(self, units: KeyedUnits) -> None:
        """The interval is over, if one was going on."""
        self.leave()
        if self._entry is not None:
            keys = {unit: key for key, unit in units.items()}
            order = []
            unit = self._following[None]
            while unit is not None:
                order.append(keys[unit])
                unit = self._following[unit]
            self._learned[self._entry] = tuple(order)
        self._forget()

    def _forget(self) -> None:
        self._entry, self._latest, self._following = None, None, {}
