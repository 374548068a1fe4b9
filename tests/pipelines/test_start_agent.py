"""The agent as a process outside a cluster: probes, placement, images and videos over HTTP, and how it ends."""

from __future__ import annotations

import base64
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from stowplan_agent import switch_signal

DEADLINE = 180.0
"""Seconds: how long a busy machine may take to start two processes; nothing is judged by it."""


@dataclass
class Process:
    """One ``stowplan agent``, and where it listens."""

    popen: subprocess.Popen[str]
    port: int
    log: Path

    def get(self, path: str) -> httpx.Response | None:
        """The answer, or None while nobody listens."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=30)
        except httpx.TransportError:
            return None

    def until(self, condition: Callable[[], bool]) -> None:
        """Ask again until the condition holds, the process ends, or the deadline has passed."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if self.popen.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the agent did not get there:\n{self.log.read_text()[-4000:]}")
            with closing(socket.socket()) as pause:
                pause.settimeout(0.1)
                pause.connect_ex(("127.0.0.1", self.port))

    def health(self) -> int | None:
        answer = self.get("/health")
        return None if answer is None else answer.status_code


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def launch(checkpoint: Path, shape: str, card: str, folder: Path) -> Process:
    port, log = free_port(), folder / f"{checkpoint.name}-{shape}.log"
    command = [sys.executable, "-c", "from stowplan_agent.cli import app; app()", "agent", str(checkpoint)]
    command += ["--shape", shape, "--accelerator", "emulated", "--device-memory", card, "--device-reserve", "1Mi"]
    command += ["--dtype", "float32", "--port", str(port)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STOWPLAN_RECORD_DIR": str(folder / "starts")}
    with log.open("w") as out:
        popen = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, text=True)
    return Process(popen, port, log)


@pytest.fixture(scope="module")
def agents(tiny_wan: Path, tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Process]]:
    """Two agents that start at the same time: a video model and an image model."""
    folder = tmp_path_factory.mktemp("agents")
    started = {
        "video": launch(tiny_wan, "32x32x5@2", "40Mi", folder),
        "image": launch(tiny_flux, "32x32@1", "24Mi", folder),
    }
    yield started
    for agent in started.values():
        agent.popen.kill()
        agent.popen.wait()


def test_the_door_is_shut_until_the_placement_is_validated(agents: dict[str, Process]) -> None:
    agent = agents["video"]
    agent.until(lambda: agent.health() is not None)
    answer = agent.get("/health")
    assert answer is not None
    if answer.status_code == 503:  # a start takes seconds, and the server answers before it; but nobody promises that
        assert "not validated yet" in answer.text
    live = agent.get("/liveness")
    assert live is not None and live.status_code == 200
    agent.until(lambda: agent.health() == 200)
    log = agent.log.read_text()
    assert log.index("phase Validate") < log.index("start ended: Ready")


def test_a_video_over_http(agents: dict[str, Process]) -> None:
    agent = agents["video"]
    agent.until(lambda: agent.health() == 200)
    made = httpx.post(f"http://127.0.0.1:{agent.port}/v1/videos", json={"prompt": "a boat"}, timeout=60)
    assert made.status_code == 200, made.text
    video = made.json()["id"]

    def completed() -> bool:
        answer = agent.get(f"/v1/videos/{video}")
        assert answer is not None and answer.json()["status"] != "failed", answer and answer.text
        return bool(answer.json()["status"] == "completed")

    agent.until(completed)
    content = agent.get(f"/v1/videos/{video}/content")
    assert content is not None
    assert content.content[4:8] == b"ftyp"


def test_an_image_over_http_is_the_same_for_the_same_seed(agents: dict[str, Process]) -> None:
    agent = agents["image"]
    agent.until(lambda: agent.health() == 200)
    images = []
    for _ in range(2):
        body = {"prompt": "a boat", "seed": 3, "response_format": "b64_json"}
        answer = httpx.post(f"http://127.0.0.1:{agent.port}/v1/images/generations", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        images.append(base64.b64decode(answer.json()["data"][0]["b64_json"]))
    assert images[0].startswith(b"\x89PNG\r\n")
    assert images[0] == images[1]


def test_a_request_that_was_never_measured_is_refused_with_numbers(agents: dict[str, Process]) -> None:
    agent = agents["image"]
    agent.until(lambda: agent.health() == 200)
    body = {"prompt": "a boat", "size": "1024x1024"}
    answer = httpx.post(f"http://127.0.0.1:{agent.port}/v1/images/generations", json=body, timeout=60)
    assert answer.status_code == 422
    assert "1048576 pixels" in answer.json()["error"]["message"]
    assert "the largest declared shape, 32x32, has 1024" in answer.json()["error"]["message"]


def test_metrics_show_the_placement(agents: dict[str, Process]) -> None:
    agent = agents["video"]
    agent.until(lambda: agent.health() == 200)
    answer = agent.get("/metrics")
    assert answer is not None
    values = dict(re.findall(r"^(stowplan_\S+) (\S+)$", answer.text, re.M))
    assert float(values["stowplan_placement_validated"]) == 1
    # A scheduler keeps some of the request before: of the proof that is one step, kept for the next start, and of the
    # probe it was the warm-up.
    predicted, peak = (float(values[f"stowplan_{name}_peak_bytes"]) for name in ("predicted", "measured"))
    assert 0 < peak == pytest.approx(predicted, abs=16 << 10)
    assert float(values['stowplan_device_memory_bytes{kind="capacity",rank="0"}']) == 40 << 20
    assert 'stowplan_component_bytes{component="transformer",tier="device"}' in values
    assert 'stowplan_phase_duration_seconds{phase="Probe"}' in values


def test_the_stored_start_is_served_as_it_is_stored(agents: dict[str, Process]) -> None:
    agent = agents["video"]
    agent.until(lambda: agent.health() == 200)
    answer = agent.get("/v1/stored-start")
    assert answer is not None and answer.status_code == 200
    file = agent.log.parent / "starts" / f"{answer.json()['fingerprint']}.json"
    assert file.read_text() == answer.text


def test_sigusr1_throws_the_kill_switch_of_a_start(tiny_flux: Path, tmp_path: Path) -> None:
    with switch_signal.held_back_in_children():
        agent = launch(tiny_flux, "32x32@2", "24Mi", tmp_path)
    try:
        agent.popen.send_signal(signal.SIGUSR1)  # before its first line: nothing in it hears yet
        agent.until(lambda: agent.health() == 200)
        answer = agent.get("/metrics")
        assert answer is not None and "stowplan_placement_info{" in answer.text and 'plan="seed"' in answer.text
        missing = agent.get("/v1/stored-start")
        assert missing is not None and missing.status_code == 404
    finally:
        agent.popen.kill()
        agent.popen.wait()


@pytest.mark.parametrize("kind", ["video", "image"])
def test_sigterm_ends_the_process_cleanly(agents: dict[str, Process], kind: str) -> None:
    agent = agents[kind]
    agent.until(lambda: agent.health() == 200)
    agent.popen.send_signal(signal.SIGTERM)
    assert agent.popen.wait(DEADLINE) == 0
    assert "Traceback" not in agent.log.read_text()
