"""Real agents behind a real server: a tiny diffusers pipeline on the emulated card, uvicorn on a free port."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import DefaultHttpxClient, OpenAI

from starts import Start, settings_of, start
from stowplan_agent.inventory.frames import frame_contract
from stowplan_agent.lifecycle.residency import residency_of
from stowplan_agent.lifecycle.service import serving_defaults
from stowplan_agent.serving.app import create_app
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import GenerationRequest, GenerationResult
from stowplan_agent.serving.results_folder import ResultsFolder
from stowplan_agent.serving.server import start_server
from stowplan_agent.serving.shelf import Shelf

DEADLINE = 120.0
"""Seconds after which a test gives up; nothing is judged by it."""
QUEUE_LIMIT = 4


@dataclass
class Gate:
    """Holds the pipeline after its next step, so that a test can act while a request runs."""

    at: threading.Event = field(default_factory=threading.Event)
    """Set while a request is held."""
    _go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._go.set()

    def hold(self) -> None:
        self.at.clear()
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def passed(self, cancelled: Callable[[], bool]) -> bool:
        """After each step: wait while held."""
        if not self._go.is_set():
            self.at.set()
            assert self._go.wait(DEADLINE), "the test never released the pipeline"
        return cancelled()


@dataclass
class ServedAgent:
    """One agent, and all that can be observed of it."""

    start: Start
    queue: RequestQueue
    metrics: AgentMetrics
    port: int
    folder: Path
    """Where its results are."""
    gate: Gate
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self, **options: Any) -> OpenAI:
        """The official client, which asks once unless ``options`` say otherwise."""
        chosen: dict[str, Any] = {"max_retries": 0, "timeout": DEADLINE} | options
        return OpenAI(
            base_url=f"{self.url}/v1", api_key="any", http_client=DefaultHttpxClient(trust_env=False), **chosen
        )

    def files(self) -> list[Path]:
        """Results on disk."""
        return [path for path in self.folder.rglob("*") if path.is_file() and path.name != ".lock"]

    def tasks(self) -> int:
        """Tasks on the server's event loop beside its own."""

        async def count() -> int:
            return len(asyncio.all_tasks())

        return asyncio.run_coroutine_threadsafe(count(), self.loop).result(DEADLINE) - 2  # uvicorn's, and this one

    def device_bytes(self) -> int:
        gc.collect()
        return self.start.startup.prepared.session.accelerator.counters().allocated

    def idle(self) -> bool:
        return self.queue.wait_until_idle(DEADLINE)


@contextmanager
def served_agent(checkpoint: Path, card: str, shape: str, folder: Path) -> Iterator[ServedAgent]:
    """Start an agent on a checkpoint, with one declared shape, and serve it until the block ends."""
    ready = start(settings_of(checkpoint, card, shapes=[shape]))
    assert ready.phase == "Ready", ready.error
    metrics, gate, service = AgentMetrics(), Gate(), ready.service()
    queue = RequestQueue(limit=QUEUE_LIMIT, metrics=metrics, shelf=Shelf(folder=ResultsFolder(folder)))

    def run(request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        return service.run(request, lambda: gate.passed(cancelled))

    spec = ready.settings.spec
    defaults = serving_defaults(spec, frame_contract(ready.startup.preparation.checkpoint), {})
    residency = residency_of(ready.startup, ready.progress)
    app = create_app(ready.progress.door, queue, metrics, defaults, residency=lambda: residency)
    loops: list[asyncio.AbstractEventLoop] = []

    @app.get("/loop", include_in_schema=False)
    async def loop() -> None:
        loops.append(asyncio.get_running_loop())

    server = start_server(app, 0)
    httpx.get(f"http://127.0.0.1:{server.port}/loop", trust_env=False).raise_for_status()
    queue.open(run, service.admit, service.recover)
    ready.progress.open_door()
    yield ServedAgent(ready, queue, metrics, server.port, folder, gate, loops[0])
    gate.release()
    assert queue.stop(DEADLINE)
    assert server.stop()
    queue.shelf.close()
    assert list(folder.iterdir()) == []
    ready.startup.close()
