"""CASES S1 to S4: a dead proxy, a ceiling over 200 requests, a client that hangs up, one shortage that stays one."""

from __future__ import annotations

import gc
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from starts import Start, settings_of, start
from stowplan_agent.inventory.frames import frame_contract
from stowplan_agent.lifecycle.service import serving_defaults
from stowplan_agent.serving.app import create_app
from stowplan_agent.serving.drift import LEAST, DriftWatch
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import Cancelled, GenerationRequest, GenerationResult, Refused
from stowplan_agent.serving.server import start_server

DEADLINE = 120.0
CEILING = 40 << 20


@pytest.fixture(scope="module")
def started(tiny_wan: Path) -> Iterator[Start]:
    ready = start(settings_of(tiny_wan, "40Mi", shapes=["32x32x5@2", "wide=64x32x1@2"]))
    assert ready.phase == "Ready", ready.error
    yield ready
    ready.startup.close()


def test_s1_proxies_that_are_dead_do_not_keep_a_start_from_ready(
    tiny_wan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    ready = start(settings_of(tiny_wan, "40Mi", shapes=["32x32x1@1"]))
    try:
        assert (ready.phase, ready.error) == ("Ready", "None")
        assert ready.service().run(ready.request(), lambda: False).frames.shape == (1, 32, 32, 3)
    finally:
        ready.startup.close()


def test_s2_a_ceiling_holds_over_200_requests_of_mixed_shapes(started: Start) -> None:
    """The reserved peak never passes the ceiling, which is a metric; what cannot fit is refused with its numbers."""
    service, accelerator = started.service(), started.startup.prepared.session.accelerator
    assert started.metric("device_memory_bytes", rank="0", kind="capacity") == CEILING
    sizes = itertools.cycle(
        [(16, 16, 1), (32, 32, 5), (64, 32, 1), (16, 32, 5), (256, 256, 1), (32, 16, 9), (64, 64, 5), (128, 32, 1)]
    )
    served, refused, peaks, weights = 0, [], set[int](), accelerator.counters().weights
    for seed, (width, height, frames) in zip(range(200), sizes, strict=False):
        request = started.request(width=width, height=height, frames=frames, steps=1, seed=seed)
        try:
            service.admit(request)
        except Refused as error:
            refused.append(str(error))
            continue
        service.run(request, lambda: False)
        peaks.add(accelerator.counters().reserved_peak + accelerator.outside_bytes())
        served += 1
    assert (served, len(refused)) == (150, 50)
    assert max(peaks) <= CEILING
    assert accelerator.counters().weights == weights
    started.startup.prepared.session.check()
    for message in set(refused):
        assert "pixels over all frames" in message
        assert "5120" in message


@dataclass
class Served:
    """The front door of a started agent, on a port."""

    client: httpx.Client
    port: int
    queue: RequestQueue
    polled: list[str]
    ended: list[str]
    begun: threading.Event


@pytest.fixture
def served(tiny_flux: Path) -> Iterator[Served]:
    ready = start(settings_of(tiny_flux, "24Mi", shapes=["32x32@20"]))
    assert ready.phase == "Ready", ready.error
    queue, metrics, service = RequestQueue(), AgentMetrics(), ready.service()
    polled, ended, begun = list[str](), list[str](), threading.Event()

    def run(request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        def asked() -> bool:
            polled.append(request.prompt)
            if polled.count("left") == 2:  # in step 2 of 20 it waits for the client, who is about to hang up
                begun.set()
                threading.Event().wait(0.01)
                while request.prompt == "left" and not cancelled():
                    threading.Event().wait(0.01)
            return cancelled()

        try:
            return service.run(request, asked)
        except Cancelled:
            ended.append(request.prompt)
            raise

    spec, checkpoint = ready.settings.spec, ready.startup.preparation.checkpoint
    defaults = serving_defaults(spec, frame_contract(checkpoint), {})
    app = create_app(ready.progress.door, queue, metrics, defaults, seeds=lambda: 7)
    server = start_server(app, 0)
    queue.open(run, service.admit, service.recover)
    ready.progress.open_door()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=DEADLINE, trust_env=False) as client:
        yield Served(client, server.port, queue, polled, ended, begun)
    assert queue.stop()
    assert server.stop()
    ready.startup.close()


def test_s3_a_client_that_hangs_up_gives_way_within_one_step(served: Served) -> None:
    body = json.dumps({"prompt": "left", "steps": 20}).encode()
    head = f"POST /v1/images/generations HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(served.client.post("/v1/images/generations", json={"prompt": "next"}))
    )
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(head + body)
        assert served.begun.wait(DEADLINE)
        waiting.start()
        assert served.client.get("/liveness").status_code == 200
    while waiting.is_alive():
        assert served.client.get("/liveness").status_code == 200
        waiting.join(0.05)
    assert [answer.status_code for answer in answers] == [200]
    assert served.ended == ["left"]
    assert served.polled.count("left") == 2
    assert served.polled.count("next") == 20


def test_s3_its_memory_returns(started: Start) -> None:
    service, accelerator = started.service(), started.startup.prepared.session.accelerator
    service.run(started.request(), lambda: False)
    gc.collect()
    before, steps = accelerator.counters().allocated, []

    def hung_up() -> bool:
        steps.append(1)
        return len(steps) == 2

    with pytest.raises(Cancelled):
        service.run(started.request(steps=20), hung_up)
    service.recover()
    # The scheduler keeps its own table of 20 timesteps instead of 2: bytes, no activations.
    assert accelerator.counters().allocated - before < 8192
    assert len(steps) == 2


def test_s4_one_shortage_does_not_inflate_the_estimate(started: Start) -> None:
    """Served three times, out of memory in the fourth; the same request then passes, again and again."""
    service, session = started.service(), started.startup.prepared.session
    accelerator, metrics = session.accelerator, AgentMetrics()
    queue = RequestQueue(metrics=metrics)
    queue.open(service.run, service.admit, service.recover)
    try:
        for _ in range(3):
            assert queue.submit(started.request()).wait(DEADLINE)
        weights = accelerator.counters().weights
        room = accelerator.capacity_bytes() - accelerator.outside_bytes() - accelerator.counters().allocated
        ballast = accelerator.allocate(room - (1 << 20))
        try:
            fourth = queue.submit(started.request())
            assert fourth.wait(DEADLINE)
        finally:
            accelerator.free(ballast)
        assert fourth.error is not None
        assert fourth.error.code == "out_of_memory"
        assert "Tried to allocate" in fourth.error.message
        assert "only this one ended" in fourth.error.message
        assert accelerator.counters().weights == weights
        session.check()
        for _ in range(3):
            again = queue.submit(started.request())
            assert again.wait(DEADLINE)
            assert again.error is None
        count = metrics.registry.get_sample_value
        assert count("stowplan_requests_total", {"status": "out_of_memory"}) == 1
        assert count("stowplan_requests_total", {"status": "completed"}) == 6
        assert count("stowplan_requests_total", {"status": "refused"}) == 0
    finally:
        assert queue.stop()


def test_requests_of_declared_shapes_are_compared_with_what_was_promised(started: Start) -> None:
    heard: list[object] = []
    watch = DriftWatch(started.progress.metrics, heard.append)
    service = started.service(drift=watch)
    for seed in range(LEAST):
        service.run(started.request(seed=seed), lambda: False)
        service.run(started.request(width=16, height=16, seed=seed), lambda: False)  # nothing was promised of it
        service.run(started.request(guidance=1.0, seed=seed), lambda: False)  # half of the passes: nor of this one
    assert watch.drift.seconds is not None and watch.drift.peak is not None
    assert watch.drift.flags == (False, False)
    assert watch.drift.seconds.share == pytest.approx(0, abs=0.02)
    assert watch.drift.peak.share == pytest.approx(0, abs=0.001)
    assert len(heard) == 1


def test_drift_is_a_condition_and_a_metric(started: Start) -> None:
    watch = DriftWatch(started.progress.metrics, started.progress.drifted)
    for _ in range(LEAST):
        watch.observe(seconds_ratio=1.3, peak_ratio=1.0)
    drifted = started.condition("Drifted")
    assert (drifted.status, drifted.reason) == ("True", "SecondsOff")
    assert "seconds are 30% above what was promised" in drifted.message
    assert started.metric("drifted", of="seconds") == 1
    for _ in range(16):
        watch.observe(seconds_ratio=1.0, peak_ratio=1.0)
    assert (started.condition("Drifted").status, started.condition("Drifted").reason) == ("False", "AsPredicted")
