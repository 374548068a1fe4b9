"""Starts components as processes that outlive this program, and ends exactly those again.

A process id alone proves nothing: the kernel gives it to another program after a while. A record therefore holds the
start time as well, and a process is ours only while both agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localcluster import packages
from localcluster.errors import ClusterError
from localcluster.layout import Layout

TAIL_LINES = 15
POLL_S = 0.05


@dataclass(frozen=True)
class Record:
    """A started process; ``start_time`` is field 22 of /proc/PID/stat, in clock ticks since boot."""

    component: str
    pid: int
    start_time: int

    @property
    def alive(self) -> bool:
        """True while this very process runs."""
        return start_time(self.pid) == self.start_time


def start_time(pid: int) -> int | None:
    """When ``pid`` started, in clock ticks since boot; None when there is no such process or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces; the state and the numbers follow the last parenthesis.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def start(layout: Layout, component: str, command: Sequence[str]) -> Record:
    """Run ``command`` in its own session with its log at ``layout.log(component)``, and record it.

    Its environment is a path and a home only: a proxy or a KUBECONFIG of the user's is not for the components.
    """
    layout.processes.mkdir(parents=True, exist_ok=True)
    layout.logs.mkdir(parents=True, exist_ok=True)
    with layout.log(component).open("ab") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": packages.search_path(), "HOME": str(layout.data)},
            start_new_session=True,
        )
    began = start_time(child.pid)
    if began is None:
        raise ClusterError(f"{component} ended at once (exit {child.wait()}):\n{tail(layout, component)}")
    record = Record(component, child.pid, began)
    (layout.processes / f"{component}.json").write_text(json.dumps(asdict(record)) + "\n")
    # The record, not this object, is what stop works from; an unreaped child would otherwise warn when collected.
    child.returncode = 0
    return record


def recorded(layout: Layout) -> dict[str, Record]:
    """Every record of this cluster by component, alive or not."""
    records = [Record(**json.loads(path.read_text())) for path in sorted(layout.processes.glob("*.json"))]
    return {record.component: record for record in records}


def end(records: Iterable[Record], grace_s: float) -> None:
    """Ask the processes to end, wait ``grace_s`` seconds for all of them together, and kill the rest."""
    remaining = [record for record in records if record.alive]
    for signal_number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        for record in remaining:
            _signal(record, signal_number)
        deadline = time.monotonic() + patience_s
        while (remaining := [record for record in remaining if _still_there(record)]) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if not remaining:
            return
    names = ", ".join(f"{record.component} (pid {record.pid})" for record in remaining)
    raise ClusterError(
        f"These processes did not end within 10 s of SIGKILL: {names}; look at their state in /proc/PID/stack."
    )


def of_pids(component: str, pids: Iterable[int]) -> list[Record]:
    """Records of processes that were found rather than started, for ``end``."""
    found = ((pid, start_time(pid)) for pid in pids)
    return [Record(component, pid, began) for pid, began in found if began is not None]


def command_lines() -> dict[int, list[str]]:
    """The arguments of every process of the machine that has any."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if arguments:
                found[int(entry.name)] = arguments
    return found


def tail(layout: Layout, component: str, lines: int = TAIL_LINES) -> str:
    """The last ``lines`` lines of a component's log, indented, with where the rest is."""
    path = layout.log(component)
    text = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "\n".join([f"the last lines of {path}:", *(f"    {line}" for line in text[-lines:] or ["(empty)"])])


def _signal(record: Record, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if record.alive:
            os.kill(record.pid, number)


def _still_there(record: Record) -> bool:
    # A child of this very program stays a zombie until it is waited for; of another program's it is not ours to wait.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)
    return record.alive
