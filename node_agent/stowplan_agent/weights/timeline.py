"""What a request is expected to call, so that weights leave with the last call of their interval and not later.

Without an expectation, or once a request departs from it, a component's weights stay until another component runs or
the request ends: later than planned, never too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """One interval of a request: a component (None between components), the calls of its entry, and passes in all."""

    component: str | None
    calls: int
    passes: int


class Timeline:
    """A position in the expected request. ``stretches`` leaves out intervals without calls."""

    def __init__(self, stretches: Sequence[Stretch] = ()) -> None:
        """An empty expectation knows nothing and is never wrong."""
        self._stretches = [stretch for stretch in stretches if stretch.calls > 0]
        self._index = -1
        self._left = 0

    def restart(self) -> None:
        """A new request begins."""
        self._index, self._left = -1, 0

    def enter(self, component: str) -> None:
        """A call of a component begins: go to its stretch, or lose the thread if none is ahead."""
        if self._left > 0 and self._component(self._index) == component:
            return
        reach = len(self._stretches)
        if self._component(self._index) == component:
            # Its own next stretch, over a null interval if need be; else it has more calls than were expected.
            reach = self._index + (2 if self._component(self._index + 1) is not None else 3)
        for index in range(self._index + 1, min(reach, len(self._stretches))):
            if self._stretches[index].component == component:
                self._index, self._left = index, self._stretches[index].calls
                return
        self._index, self._left = len(self._stretches), 0

    def leave(self, component: str) -> bool:
        """A call ends. True if it was the stretch's last."""
        if self._component(self._index) != component or self._left == 0:
            return False
        self._left -= 1
        return self._left == 0

    def passes(self) -> int | None:
        """Passes over the layers left in this stretch, this call's included; None when unknown."""
        if self._left == 0:
            return None
        stretch = self._stretches[self._index]
        return -(-stretch.passes * self._left // stretch.calls)

    def coming(self, *, ended: bool) -> str | None:
        """The component of the interval after this one, which a prefetch may bring in now.

        ``ended`` says that this stretch's last call has returned: what runs now is the null interval after it, if the
        timeline has one there.
        """
        after = self._index + 1
        if ended and after < len(self._stretches) and self._stretches[after].component is None:
            after += 1
        return self._component(after)

    def _component(self, index: int) -> str | None:
        return self._stretches[index].component if 0 <= index < len(self._stretches) else None
