"""A synthetic pipeline whose steps a test holds and releases, and a real server in front of it on a real port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import numpy as np
import pytest

from stowplan_agent.serving.app import ServingDefaults, create_app
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import Cancelled, Frames, GenerationRequest, GenerationResult
from stowplan_agent.serving.server import start_server
from stowplan_agent.serving.shelf import Shelf

DEADLINE = 20.0


@dataclass
class SyntheticPipeline:
    """Deterministic frames from the seed. ``hold`` stops it before its first step until ``release``."""

    errors: dict[str, BaseException] = field(default_factory=dict)
    """What to raise, once, for a prompt."""
    steps_run: dict[str, int] = field(default_factory=dict)
    recovered: int = 0
    cancelled: Callable[[], bool] = lambda: False
    """Whether the request that runs is asked to stop."""
    _go: threading.Event = field(default_factory=threading.Event)
    _begun: dict[str, threading.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._go.set()

    def hold(self) -> None:
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def begun(self, prompt: str) -> threading.Event:
        return self._begun.setdefault(prompt, threading.Event())

    def run(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        self.cancelled = cancelled
        self.begun(request.prompt).set()
        assert self._go.wait(DEADLINE), "the test never released the pipeline"
        if request.prompt in self.errors:
            raise self.errors.pop(request.prompt)
        for step in range(request.steps):
            self.steps_run[request.prompt] = step + 1
            if cancelled():
                raise Cancelled
        return GenerationResult(frames=pictures(request), seconds=0.5, fps=16)

    def recover(self) -> None:
        self.recovered += 1


def pictures(request: GenerationRequest) -> Frames:
    """Smooth colours that differ between frames and seeds, and survive a video encoder."""
    count = request.count if request.kind == "image" else request.frames
    frames = np.empty((count, request.height, request.width, 3), np.uint8)
    for index in range(count):
        shade = (request.seed * 37 + index * 11) % 200
        frames[index] = (shade, 230 - shade, 40 + shade // 2)
        frames[index, :, : request.width // 2] = (40, shade, 220 - shade)
    return frames


VIDEO = ServingDefaults(
    model="tiny-wan", kind="video", width=64, height=32, frames=9, steps=4, max_width=128, max_height=128,
    max_frames=33, max_steps=50,
)  # fmt: skip
IMAGE = ServingDefaults(
    model="tiny-flux", kind="image", width=64, height=32, steps=4, max_width=128, max_height=128, max_count=3
)


@dataclass
class Served:
    """A server, the client that talks to it, and everything behind it."""

    client: httpx.Client
    port: int
    door: Door
    queue: RequestQueue
    metrics: AgentMetrics
    pipeline: SyntheticPipeline
    refuse: Callable[[GenerationRequest], None] | None = None

    def admit(self, request: GenerationRequest) -> None:
        if self.refuse is not None:
            self.refuse(request)

    def make_ready(self) -> None:
        self.queue.open(self.pipeline.run, self.admit, self.pipeline.recover)
        self.door.phase = "Ready"
        self.door.open_up()

    def finished(self, video_id: str) -> dict[str, object]:
        """The video object once its job has ended, by asking as a client does."""
        pause = threading.Event()
        for _ in range(int(DEADLINE / 0.02)):
            answer = self.client.get(f"/v1/videos/{video_id}").json()
            if answer["status"] in ("completed", "failed"):
                return dict(answer)
            pause.wait(0.02)
        raise AssertionError(f"video {video_id} did not end")


def serve(defaults: ServingDefaults, shelf: Shelf | None = None) -> Iterator[Served]:
    door, metrics = Door(), AgentMetrics()
    queue = RequestQueue(limit=2, metrics=metrics, shelf=shelf)
    app = create_app(door, queue, metrics, defaults, seeds=lambda: 7)
    server = start_server(app, 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=DEADLINE, trust_env=False) as client:
        served = Served(client, server.port, door, queue, metrics, SyntheticPipeline())
        yield served
        served.pipeline.release()
    assert queue.stop(DEADLINE)
    assert server.stop()
    queue.shelf.close()


@pytest.fixture
def pipeline() -> SyntheticPipeline:
    return SyntheticPipeline()


@pytest.fixture
def video_defaults() -> ServingDefaults:
    return VIDEO


@pytest.fixture
def image_defaults() -> ServingDefaults:
    return IMAGE


@pytest.fixture
def starting() -> Iterator[Served]:
    """A video server whose start-up has not finished."""
    yield from serve(VIDEO)


@pytest.fixture
def videos(starting: Served) -> Served:
    starting.make_ready()
    return starting


@pytest.fixture
def images() -> Iterator[Served]:
    for served in serve(IMAGE):
        served.make_ready()
        yield served


@pytest.fixture
def one_place() -> Iterator[Served]:
    """A video server that keeps one finished video."""
    for served in serve(VIDEO, Shelf(most_jobs=1)):
        served.make_ready()
        yield served
