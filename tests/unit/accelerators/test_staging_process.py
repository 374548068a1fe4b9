"""The staging ring and its process: its threads end with it, no child shares its memory, a few threads do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from accelerator_contract import Numbers, pattern
from stowplan_agent.accelerators.staging import Staging
from unit.accelerators.threaded_ring import PIECE, device, fill, landed, ring_over
from unit.accelerators.threaded_stream import DEADLINE, Stream


def test_threads_do_not_keep_the_process_alive() -> None:
    program = """
import threading
from accelerator_contract import Numbers, pattern
from unit.accelerators.threaded_ring import device, fill, landed, ring_over
from unit.accelerators.threaded_stream import Stream
stream = Stream()
ring = ring_over(stream)
ring.open()
landed(fill(ring, device(5000), Numbers(pattern(5000))))
fill(ring, device(5000), Numbers(pattern(5000), go=threading.Event()))
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_a_child_process_has_no_copy_of_the_memory(stream: Stream) -> None:
    """Pages that a child shares are copied at the next write, and the device would read the old ones from then on."""
    addresses: list[int] = []
    ring = Staging(stream, pin=lambda memory: addresses.append(memory.data_ptr()) is not None, unpin=stream.unpin)
    ring.open()
    inside, flags = False, list[str]()
    for word, *rest in map(str.split, Path("/proc/self/smaps").read_text().splitlines()):
        if not word.endswith(":"):
            start, _, end = word.partition("-")
            inside = int(start, 16) <= addresses[0] < int(end, 16)
        elif inside and word == "VmFlags:":
            flags = rest
    assert "dc" in flags
    ring.close()


@pytest.mark.parametrize("allowed", [0, 2])
def test_fewer_threads_than_asked_for_are_enough_and_none_is_an_error(
    allowed: int, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of processes of a pod: with no thread at all, a wait would never end."""
    ring, started, start = ring_over(stream, threads=4), [], threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", limited)
        if not allowed:
            with pytest.raises(RuntimeError, match="new thread"):
                ring.open()
            assert ring.locked_bytes == 0
        else:
            assert ring.open()
    host, buffer = pattern(5 * PIECE), device(5 * PIECE)
    ring.open()
    landed(fill(ring, buffer, Numbers(host)))
    assert torch.equal(buffer, host)
    ring.close()
