"""Points: every operation of a stage of the start is one, numbered by kind, and at each a fault can be put.

Nobody lists them. Whatever is announced (`accelerators.announced`) while a stage runs is counted; a run that records
gives the names of all the points that there are, and a run with one of these names has the fault there:

    STAGE:KIND.N            the operation fails, as the device, the driver or the kernel would make it
    STAGE:KIND.N=EFFECT     ``fail``; ``slow``, it takes longer; ``kill``, the process dies; ``term``, asked to stop
    STAGE:KIND.N+           the N-th and every one after it: a card that has fallen off its bus

STAGE is a phase of the start in lower case, or ``commit``; KIND is a method of `Accelerator`, or ``arena`` (host
memory), ``read`` (a file), ``hook`` (an installation), ``report`` (of a status), ``activation`` (an emulated card's).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, get_args

import torch

from stowplan_agent.accelerators.announced import EVENT, NEVER_FAIL, operations
from stowplan_api.residency_placement import Phase

STAGES: Final = frozenset(str(phase).lower() for phase in get_args(Phase)) | {"commit"}
KINDS: Final = operations() | {"arena", "read", "hook", "report", "activation"}
SLOW_SECONDS: Final = 0.05
"""How long an operation is held up: long against a copy of a layer, so that orders change."""
_POINT: Final = re.compile(r"([a-z]+):([a-z_]+)\.([1-9][0-9]{0,5})(\+?)(?:=(fail|slow|kill|term))?")


@dataclass(frozen=True)
class Point:
    """The ``number``-th operation of a kind in a stage, from 1, and what happens there."""

    stage: str
    kind: str
    number: int
    onwards: bool = False
    effect: str = "fail"

    @classmethod
    def parse(cls, text: str) -> Point | None:
        """A point in the form that the module's docstring states; None for anything else."""
        match = _POINT.fullmatch(text)
        if match is None or match[1] not in STAGES or match[2] not in KINDS:
            return None
        effect = match[5] or "fail"
        if effect == "fail" and match[2] in NEVER_FAIL:
            return None
        return cls(match[1], match[2], int(match[3]), bool(match[4]), effect)

    def is_met(self, stage: str, kind: str, number: int) -> bool:
        """Whether the operation that comes now is this one."""
        reached = number >= self.number if self.onwards else number == self.number
        return (self.stage, self.kind) == (stage, kind) and reached

    def __str__(self) -> str:
        onwards, effect = "+" if self.onwards else "", "" if self.effect == "fail" else f"={self.effect}"
        return f"{self.stage}:{self.kind}.{self.number}{onwards}{effect}"


class Points:
    """Counts the operations of the stages that it listens to, and does what was asked at the points given."""

    def __init__(self, faults: tuple[Point, ...] = (), *, sleep: Callable[[float], object] = time.sleep) -> None:
        """Listens to nothing yet."""
        self.faults = faults
        self.seen: Counter[tuple[str, str]] = Counter()
        """How many operations of each stage and kind there were."""
        self._sleep = sleep
        self._stage = ""
        self._lock = threading.Lock()

    def all(self) -> list[str]:
        """The name of every point that was reached, for `Point.parse`; those that cannot fail are left out."""
        return [
            str(Point(stage, kind, number))
            for (stage, kind), count in sorted(self.seen.items())
            if kind not in NEVER_FAIL
            for number in range(1, count + 1)
        ]

    @contextmanager
    def within(self, stage: str) -> Iterator[None]:
        """Listen while this stage of the start runs; a stage within another takes its place until it ends."""
        global _listening
        _install()
        outer, self._stage = (_listening, self._stage), stage
        _listening = self
        try:
            yield
        finally:
            _listening, self._stage = outer

    def reach(self, kind: str) -> None:
        """An operation is about to be done. Raises what it is to fail with."""
        with self._lock:
            self.seen[self._stage, kind] += 1
            number = self.seen[self._stage, kind]
        for point in self.faults:
            if point.is_met(self._stage, kind, number):
                self._happen(point, number)

    def _happen(self, point: Point, number: int) -> None:
        if point.effect == "slow":
            self._sleep(SLOW_SECONDS)
        elif point.effect == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif point.effect == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            where = f"{point.stage}:{point.kind}.{number}"
            raise _error(point.kind, f"fault {where} was injected by STOWPLAN_FAULTS")


def _error(kind: str, message: str) -> Exception:
    """What the real thing raises when it fails."""
    return _ERRORS.get(kind, RuntimeError)(message)


_ERRORS: Final[Mapping[str, Callable[[str], Exception]]] = {
    "allocate": torch.OutOfMemoryError,
    "hold": torch.OutOfMemoryError,
    "activation": torch.OutOfMemoryError,
    "arena": lambda message: OSError(errno.ENOMEM, message),
    "read": lambda message: OSError(errno.EIO, message),
    "report": lambda message: OSError(errno.EPIPE, message),
}

_listening: Points | None = None
_installed = False


def _install() -> None:
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_heard)  # for good: Python takes no hook off


def _heard(event: str, _arguments: tuple[Any, ...]) -> None:
    if _listening is not None and event.startswith(EVENT):
        _listening.reach(event[len(EVENT) :])
