"""Ranks as real processes under the supervisor, and what came of them."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stowplan_agent.ranks.supervision import Supervisor
from stowplan_agent.ranks.supervision.fleet import Grace

PROGRAMS = Path(__file__).with_name("rank_programs.py")
SHORT = Grace(after_failure=2.0, after_request=5.0)


@dataclass(frozen=True)
class Outcome:
    """The exit code of all, what they printed, and why they were ended."""

    code: int
    lines: list[str]
    errors: list[str]
    cause: str | None

    def result(self, rank: int) -> Any:
        """The JSON value that a rank printed."""
        prefix = f"[rank {rank}] result "
        (line,) = [line for line in self.lines if line.startswith(prefix)]
        return json.loads(line.removeprefix(prefix))


class Tee(io.BytesIO):
    """Keeps what is written and sets an event once a text was seen often enough."""

    def __init__(self, text: bytes, times: int) -> None:
        super().__init__()
        self._awaited: list[tuple[bytes, int, threading.Event]] = []
        self.seen = self.awaited(text, times)

    def awaited(self, text: bytes, times: int) -> threading.Event:
        """An event that is set once this text was seen so often."""
        event = threading.Event()
        self._awaited.append((text, times, event))
        self._look()
        return event

    def write(self, data: Any) -> int:
        written = super().write(data)
        self._look()
        return written

    def _look(self) -> None:
        for text, times, event in self._awaited:
            if self.getvalue().count(text) >= times:
                event.set()


def commands(program: str, ranks: int, *arguments: str) -> list[list[str]]:
    """``program``: a function of `rank_programs`, `card_programs` or `engine_programs`."""
    return [[sys.executable, str(PROGRAMS), program, *arguments] for _ in range(ranks)]


def run_ranks(
    program: str, ranks: int, *arguments: str, grace: Grace = SHORT, output: Tee | None = None, **more: Any
) -> Outcome:
    """Start so many ranks and wait for the end of all."""
    printed, errors = output or io.BytesIO(), io.BytesIO()
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    supervisor = Supervisor(
        commands(program, ranks, *arguments), variables=variables, grace=grace, output=(printed, errors), **more
    )
    code = supervisor.run()
    text, complaints = printed.getvalue().decode(), errors.getvalue().decode()
    return Outcome(code, text.splitlines(), complaints.splitlines(), supervisor.fleet.cause)
