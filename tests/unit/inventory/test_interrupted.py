"""A download that was killed goes on where it was: what has come is not asked for again, and never trusted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from unit.inventory.fake_hub import FakeHub, of_folder, serving
from unit.inventory.test_hub import PROGRAM, SHARD, TOKEN, environment_of, fetch

MIB = 1 << 20
CONTENT = bytes(range(256)) * (24 << 12)  # 24 MiB
DEADLINE = 60
NOTHING = threading.Event()


@pytest.fixture
def hub(checkpoint_folder: Path) -> Iterator[FakeHub]:
    with serving(FakeHub(of_folder(checkpoint_folder) | {SHARD: CONTENT})) as started:
        yield started


def blobs(home: Path) -> Path:
    folder = home / "hub" / "models--org--wan" / "blobs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def left_behind(hub: FakeHub, home: Path, content: bytes, *, name: str = "0a1b2c3d", age: float = 600) -> Path:
    """A part that a killed process left."""
    part = blobs(home) / f"{hub.etag(SHARD)}.{name}.incomplete"
    part.write_bytes(content)
    os.utime(part, (time.time() - age,) * 2)
    return part


def whole(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and of_folder(Path(done.stdout.strip()))[SHARD] == CONTENT


def test_a_killed_process_is_followed_by_one_that_asks_for_the_rest(hub: FakeHub, tmp_path: Path) -> None:
    """The client writes 10 MiB at a time, so that is what a part of 12 has."""
    hub.stall_after[SHARD] = 12 * MIB
    killed = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "hf://org/wan", "main"],
        env=environment_of(hub, tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + DEADLINE
        while not any(part.stat().st_size == 10 * MIB for part in blobs(tmp_path).glob("*.incomplete")):
            assert time.monotonic() < until and killed.poll() is None
            NOTHING.wait(0.05)
    finally:
        killed.kill()
        killed.wait()
        hub.released.set()
    hub.requests.clear()
    done = fetch(hub, tmp_path)
    assert whole(done), done.stderr
    assert hub.ranges(SHARD) == [f"bytes={10 * MIB}-"]
    assert list(blobs(tmp_path).glob("*.incomplete")) == []
    assert f"going on with {SHARD} at 10 MiB of 24 MiB" in done.stderr


def test_the_largest_part_is_taken_and_the_token_stays_with_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    hub.needs_token = TOKEN
    left_behind(hub, tmp_path, CONTENT[: 5 * MIB], name="11111111", age=7200)
    left_behind(hub, tmp_path, CONTENT[: 20 * MIB + 7], name="22222222")
    assert whole(fetch(hub, tmp_path, HF_TOKEN=TOKEN))
    assert hub.ranges(SHARD) == [f"bytes={20 * MIB + 7}-"]


def test_a_part_that_is_whole_is_only_checked(hub: FakeHub, tmp_path: Path) -> None:
    left_behind(hub, tmp_path, CONTENT)
    assert whole(fetch(hub, tmp_path))
    assert hub.ranges(SHARD) == []


def test_a_part_that_is_no_beginning_is_found_by_its_hash_and_begun_anew(hub: FakeHub, tmp_path: Path) -> None:
    part = left_behind(hub, tmp_path, b"\1" * (9 * MIB))
    done = fetch(hub, tmp_path)
    assert whole(done)
    assert hub.ranges(SHARD) == [f"bytes={9 * MIB}-", None]
    assert "is not its beginning" in done.stderr and not part.exists()


def test_a_connection_that_breaks_meanwhile_is_resumed_too(hub: FakeHub, tmp_path: Path) -> None:
    left_behind(hub, tmp_path, CONTENT[: 5 * MIB])
    hub.break_after[SHARD] = 11 * MIB
    assert whole(fetch(hub, tmp_path))
    assert hub.ranges(SHARD) == [f"bytes={5 * MIB}-", f"bytes={15 * MIB}-"]


@contextmanager
def downloading(hub: FakeHub, home: Path) -> Iterator[None]:
    """Another process has the library's lock on the file for a while."""
    locks = home / "hub" / ".locks" / "models--org--wan"
    locks.mkdir(parents=True)
    with FileLock(locks / f"{hub.etag(SHARD)}.lock"):
        yield


def test_a_part_that_another_process_writes_is_let_be(hub: FakeHub, tmp_path: Path) -> None:
    part = left_behind(hub, tmp_path, CONTENT[: 5 * MIB])
    with downloading(hub, tmp_path):
        waiting = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "hf://org/wan", "main"], env=environment_of(hub, tmp_path)
        )
        until = time.monotonic() + DEADLINE
        while not hub.ranges("vae/diffusion_pytorch_model.safetensors"):  # by now it has left the part alone
            assert time.monotonic() < until and waiting.poll() is None
            NOTHING.wait(0.05)
        assert part.stat().st_size == 5 * MIB
        assert hub.ranges(SHARD) == []
    assert waiting.wait(DEADLINE) == 0
    assert hub.ranges(SHARD) == [None]
