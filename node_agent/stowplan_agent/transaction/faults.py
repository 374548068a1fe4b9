"""Faults on purpose: where tests and drills make a transaction fail.

``STOWPLAN_FAULTS`` is a comma-separated list of points. Each fires once, at its point, and nowhere else:

- ``apply.N``: the N-th move (from 1) of an apply raises.
- ``validate.output``, ``validate.seconds``, ``validate.memory``: validation measures another output, ten times the
  seconds, or a peak above the budget.
- ``validate.run``: the validation request runs out of memory.
- ``rollback``: the rollback itself raises, which ends the process.
"""

from __future__ import annotations

import re
from typing import Final

_POINTS: Final = re.compile(r"apply\.[1-9][0-9]{0,3}|validate\.(output|seconds|memory|run)|rollback")


class FaultError(ValueError):
    """A point that does not exist. The message lists those that do."""


class InjectedFault(RuntimeError):  # noqa: N818 - a fault, and named as one everywhere
    """What an injected fault raises."""


class Faults:
    """The points that will fail. An empty set never does."""

    def __init__(self, text: str = "") -> None:
        """Parse ``STOWPLAN_FAULTS``. Raises `FaultError` for a point that does not exist."""
        self._pending = {point for point in re.split(r"[,\s]+", text.strip()) if point}
        for point in sorted(self._pending):
            if _POINTS.fullmatch(point) is None:
                raise FaultError(
                    f"STOWPLAN_FAULTS names {point!r}, which is no point; choose from apply.N, validate.output, "
                    "validate.seconds, validate.memory, validate.run, rollback"
                )

    def fires(self, point: str) -> bool:
        """Whether a fault is pending at this point; it is not any more afterwards."""
        if point not in self._pending:
            return False
        self._pending.remove(point)
        return True

    def reach(self, point: str) -> None:
        """Raise `InjectedFault` if a fault is pending at this point."""
        if self.fires(point):
            raise InjectedFault(f"fault {point} was injected by STOWPLAN_FAULTS")
