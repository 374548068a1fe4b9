"""Faults on purpose: where tests and drills make a transaction fail.

``STOWPLAN_FAULTS`` is a list of points, with commas between. These fire once, at their point, and nowhere else:

- ``apply.N``: the N-th move (from 1) of an apply raises.
- ``validate.output``, ``validate.seconds``, ``validate.memory``: validation measures another output, ten times the
  seconds, or a peak above the budget.
- ``validate.run``: the validation request runs out of memory.
- ``rollback``: the rollback itself raises, which ends the process.

Where there are several ranks, ``rank1/apply.1`` is a point of rank 1 only, and ``apply.1`` one of each.

And every single operation is one: ``apply:allocate.3``, ``validate:copy.10=slow``, ``commit:unpin.1=kill``; `points`
has the language.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Final

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.announced import announce
from stowplan_agent.transaction.judgement import Measured
from stowplan_agent.transaction.points import Point, Points

_OF_RANK: Final = re.compile(r"(?:rank([0-9]{1,3})/)?(.*)")
_NAMED: Final = re.compile(r"apply\.[1-9][0-9]{0,3}|validate\.(output|seconds|memory|run)|rollback")


def of_rank(text: str, rank: int) -> str:
    """The points of ``STOWPLAN_FAULTS`` that are one rank's."""
    points = [_OF_RANK.fullmatch(name) for name in re.split(r"[,\s]+", text.strip()) if name]
    return ",".join(point[2] for point in points if point and (point[1] is None or int(point[1]) == rank))


class FaultError(ValueError):
    """A point that does not exist. The message lists those that do."""


class InjectedFault(RuntimeError):  # noqa: N818 - a fault, and named as one everywhere
    """What an injected fault raises."""


class Faults:
    """The points that will fail. An empty set never does, and costs nothing."""

    def __init__(self, text: str = "", points: Points | None = None) -> None:
        """Parse ``STOWPLAN_FAULTS``. Raises `FaultError` for a point that does not exist.

        ``points`` instead of those that ``text`` names: given empty, it records all that there are.
        """
        self._pending: set[str] = set()
        found: list[Point] = []
        for name in sorted({name for name in re.split(r"[,\s]+", text.strip()) if name}):
            point = Point.parse(name)
            if point is not None:
                found.append(point)
            elif _NAMED.fullmatch(name):
                self._pending.add(name)
            else:
                raise FaultError(
                    f"STOWPLAN_FAULTS names {name!r}, which is no point; choose from apply.N, validate.output, "
                    "validate.seconds, validate.memory, validate.run, rollback, or STAGE:KIND.N with =slow, =kill or "
                    "=term behind it, such as apply:allocate.3"
                )
        self.points = points if points is not None else Points(tuple(found)) if found else None
        """Who counts operations; None where no operation is to fail."""

    def watch(self, accelerator: Accelerator) -> None:
        """Let the accelerator's operations be points, if any operation is one."""
        if self.points is not None:
            announce(accelerator)

    def within(self, stage: str) -> AbstractContextManager[None]:
        """What runs within it is this stage of the start."""
        return nullcontext() if self.points is None else self.points.within(stage.lower())

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


def perturbed(measured: Measured, faults: Faults, capacity_bytes: int) -> Measured:
    """The measurement, or what an injected fault makes of it."""
    if faults.fires("validate.output"):
        measured = replace(measured, digest="0" * len(measured.digest))
    if faults.fires("validate.seconds") and measured.seconds is not None:
        measured = replace(measured, seconds=measured.seconds * 10 + 1)
    if faults.fires("validate.memory"):
        measured = replace(measured, peak_bytes=capacity_bytes + 1)
    return measured
