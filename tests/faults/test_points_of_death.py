"""A process that dies, or is asked to stop, at an operation of a start: nothing is left behind, the next one is Ready.

Real processes: the last copy of an apply, the middle of a validation, the end of a commit.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.drills import drill_on

SHAPE = "32x32x1@1"
PROGRAM = """
import sys
from stowplan_agent.cli import app
app()
"""
DIED, STOPPED = -signal.SIGKILL, 0
DEADLINE = 300.0
"""Seconds for several processes on a busy machine; nothing is judged by it."""


@pytest.fixture(scope="module")
def points(checkpoint: Path) -> Iterator[list[str]]:
    with drill_on(checkpoint, "40Mi", SHAPE) as drill:
        last = {point.rpartition(".")[0]: point for point in drill.points()}
        yield [last["apply:copy"], last["commit:trim"]]


def launch(checkpoint: Path, faults: str, scratch: Path) -> subprocess.Popen[str]:
    """An agent on a port of the system's choice, whose temporary files, if any, would be in ``scratch``."""
    command = [sys.executable, "-c", PROGRAM, "agent", str(checkpoint), "--shape", SHAPE, "--dtype", "float32"]
    command += [
        "--accelerator",
        "emulated",
        "--device-memory",
        "40Mi",
        "--device-reserve",
        "1Mi",
        "--port",
        free_port(),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STOWPLAN_FAULTS": faults, "TMPDIR": str(scratch)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True)


def ending(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The code it ends with, and what it said."""
    with process:
        try:
            _, said = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    return process.returncode, said


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def shared_memory() -> set[str]:
    segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {path.name for path in Path("/dev/shm").iterdir()} | {line.split()[1] for line in segments}


def test_a_process_that_dies_at_any_kind_of_point_leaves_nothing_behind(
    checkpoint: Path, points: list[str], tmp_path: Path
) -> None:
    files = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    faults = {f"{point}=kill": DIED for point in points} | {"validate:activation.1000=term": STOPPED}
    for fault, code in faults.items():
        scratch = tmp_path / fault.replace(":", "-")
        scratch.mkdir()
        before = shared_memory()
        ended, said = ending(launch(checkpoint, fault, scratch))
        assert ended == code, (fault, said[-2000:])
        assert "Traceback" not in said
        assert shared_memory() <= before
        assert list(scratch.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == files
    assert not list(Path(tempfile.gettempdir()).glob("*stowplan*.tmp"))


def test_a_rollback_that_fails_ends_the_process_with_its_code_and_a_message(checkpoint: Path, tmp_path: Path) -> None:
    code, said = ending(launch(checkpoint, "validate.seconds,rollback:pin.1", tmp_path))
    assert code == 70
    assert "fault rollback:pin.1 was injected by STOWPLAN_FAULTS" in said
    assert "it was to undo this: a request takes " in said
