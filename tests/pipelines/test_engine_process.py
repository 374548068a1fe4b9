"""H9: a process that is killed leaves nothing behind, and the next one needs no cleaning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAM = """
import hashlib, sys
from pathlib import Path
from pipelines.tiny_requests import PLACEMENTS, ask, load, managed, place_all
tiny = load(Path(sys.argv[1]))
with managed(tiny.pipe) as (engine, card):
    place_all(engine, PLACEMENTS["half, forward, strided"])
    output = ask(tiny.pipe, engine)
    assert engine.ledger.total("pinned") > 0
    with engine.request():
        tiny.pipe.transformer.register_forward_hook(lambda *_: (print("in a request", flush=True), sys.stdin.read()))
        print(hashlib.sha256(output.numpy().tobytes()).hexdigest(), flush=True)
        tiny.pipe(prompt="a red fox", width=32, height=32, num_inference_steps=2)
"""


def shared_memory_of(process: int) -> set[str]:
    """Shared memory that outlives its process: files of /dev/shm that it has mapped or open, segments of System V."""
    maps = Path(f"/proc/{process}/maps").read_text().splitlines()
    found = {line.split(maxsplit=5)[-1] for line in maps if "/dev/shm/" in line or "/SYSV" in line}
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            found |= {target for target in [str(entry.readlink())] if target.startswith("/dev/shm/")}
        except OSError:
            continue  # closed meanwhile
    segments = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    found = {path for path in found if not path.endswith("(deleted)")}  # goes with its last user already
    return found | {f"System V segment {fields[1]}" for fields in segments if int(fields[4]) == process}


@pytest.fixture
def started(tiny_folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def tiny_folder(write_tiny: Callable[[str], Path]) -> Path:
    return write_tiny("tiny-qwen")


def start(folder: Path, started: list[subprocess.Popen[str]]) -> tuple[subprocess.Popen[str], str]:
    """A process in the middle of a request, with streamed and locked weights, and the digest of its first output."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    started.append(process)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip(), process.stdout.readline().strip()]
    assert lines[1] == "in a request", lines
    return process, lines[0]


def test_h9_a_killed_process_leaves_no_shared_memory_and_the_next_start_needs_no_cleaning(
    tiny_folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    files = sorted(path for path in tiny_folder.rglob("*"))
    digests = []
    for _ in range(2):
        process, digest = start(tiny_folder, started)
        digests.append(digest)
        assert shared_memory_of(process.pid) == set()
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL
        assert not Path(f"/proc/{process.pid}").exists()
    assert digests[0] == digests[1]
    assert sorted(path for path in tiny_folder.rglob("*")) == files  # no scratch file beside the checkpoint
