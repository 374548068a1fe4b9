"""SIGTERM to a real process that is busy: each request is finished or fails with what to do, and the process ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from stowplan_agent.serving.drain import AFTERWARDS

DEADLINE = 240.0
"""Seconds that a busy machine may take to start a process; nothing is judged by it."""
GRACE = AFTERWARDS + 6
"""What the process is told of its grace period: six seconds to finish what it has begun."""
KEY = {"Idempotency-Key": "the first"}


@dataclass
class Process:
    """One ``stowplan agent`` on the tiny image model."""

    popen: subprocess.Popen[str]
    port: int
    log: Path
    results: Path

    def until(self, holds: Callable[[], bool]) -> None:
        deadline, pause = time.monotonic() + DEADLINE, threading.Event()
        while not holds():
            if self.popen.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the agent did not get there:\n{self.log.read_text()[-4000:]}")
            pause.wait(0.05)

    def sample(self, name: str) -> float:
        text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", trust_env=False).text
        return float(next(line for line in text.splitlines() if line.startswith(f"stowplan_{name} ")).split()[-1])

    def ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def process(write_tiny: Callable[[str], Path], tmp_path: Path) -> Iterator[Process]:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results, log = tmp_path / "results", tmp_path / "log"
    results.mkdir()
    command = [sys.executable, "-c", "from stowplan_agent.cli import app; app()", "agent", str(write_tiny("tiny-flux"))]
    command += ["--shape", "32x32@1", "--accelerator", "emulated", "--device-memory", "24Mi", "--device-reserve", "1Mi"]
    command += ["--dtype", "float32", "--port", str(port)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(results),
        "STOWPLAN_GRACE_SECONDS": str(GRACE),
        "STOWPLAN_QUEUE_LIMIT": "8",
    }
    with log.open("w") as out:
        popen = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, text=True)
    yield Process(popen, port, log, results)
    popen.kill()
    popen.wait()


def test_each_request_ends_or_says_why(process: Process) -> None:
    process.until(process.ready)
    ends: dict[int, str] = {}
    urls: list[str | None] = []
    options = {"api_key": "any", "max_retries": 0, "timeout": DEADLINE}
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{process.port}/v1",
        http_client=openai.DefaultHttpxClient(trust_env=False),
        **options,
    )

    def ask(number: int) -> None:
        """The first is short; the others would take minutes."""
        try:
            made = client.images.generate(
                prompt="a",
                response_format="url",
                extra_body={"steps": 200, "n": 10} if number else {"steps": 1},  # type: ignore[arg-type]
                extra_headers={} if number else KEY,
            )
            assert made.data is not None
            urls.append(made.data[0].url)
            ends[number] = "made"
        except openai.InternalServerError as error:
            ends[number] = f"{error.status_code} {error.code} retry after {error.response.headers['retry-after']}"

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    clients[0].start()
    process.until(lambda: 0 in ends)
    for one in clients[1:]:
        one.start()
    process.until(lambda: process.sample("queue_requests") == 4)
    process.popen.send_signal(signal.SIGTERM)
    process.until(lambda: not process.ready())
    with pytest.raises(openai.InternalServerError, match="takes no more requests; send it again") as late:
        client.images.generate(prompt="late")
    assert late.value.code == "stopping"
    ask(0)  # its client lost the answer: it is the same, and still leads to the image
    assert urls[0] is not None and urls == [urls[0]] * 2
    assert httpx.get(urls[0], trust_env=False).content.startswith(b"\x89PNG")
    for one in clients:
        one.join(DEADLINE)
    assert process.popen.wait(DEADLINE) == 0
    assert ends == {0: "made"} | dict.fromkeys(range(1, 6), "503 stopping retry after 1")
    assert list(process.results.iterdir()) == []
    log = process.log.read_text()
    assert "Traceback" not in log
    assert "what has not ended fails now" in log
