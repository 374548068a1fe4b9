"""A full disk, a reader that went away, a stream that was never open: one sentence, no traceback, exit code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = Path(__file__).parents[1] / "planning" / "records" / "small"
RUN = "from stowplan_agent.cli import app; app()"
COMMANDS = {
    "plan": ("plan", str(SMALL / "device-03.json")),
    "plan-json": ("plan", str(SMALL / "device-03.json"), "--output", "json"),
    "explain": ("explain", str(SMALL / "device-03.json")),
    "frontier": ("frontier", str(SMALL / "device-03.json"), "--device-memory", "8Gi", "--output", "html"),
    "cost": ("cost", str(SMALL / "moves-02.json"), "-"),
}
SENTENCE = "stowplan: standard output cannot be written ({}); give it a file or a pipe that takes it all"


def run(name: str, stdout: int | None, **options: object) -> subprocess.CompletedProcess[bytes]:
    placement = " ".join((SMALL / "moves-02.current.json").read_text().split()).encode()
    return subprocess.run(
        [sys.executable, "-c", RUN, *COMMANDS[name]],
        stdout=stdout,
        stderr=subprocess.PIPE,
        input=placement if name == "cost" else None,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def check(done: subprocess.CompletedProcess[bytes], reason: str) -> None:
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == SENTENCE.format(reason)
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is a thing of Linux")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(name: str) -> None:
    with Path("/dev/full").open("wb") as full:
        check(run(name, full.fileno()), "No space left on device")


@pytest.mark.parametrize("name", ["plan", "plan-json", "cost"])
def test_a_reader_that_went_away(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        check(run(name, writing), "Broken pipe")
    finally:
        os.close(writing)


def test_a_stream_that_was_never_open() -> None:
    check(run("plan", None, preexec_fn=lambda: os.close(1)), "it is closed")


def test_nobody_reads_errors() -> None:
    """The answer still arrives, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *COMMANDS["plan-json"]],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.close(2),
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith(b'{"apiVersion"')
