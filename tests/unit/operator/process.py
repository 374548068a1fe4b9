"""The operator's parts wired together as `Program` does it, on a fake API server and a clock that jumps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from fake_server import FakeServer
from observations import KEY, SETTINGS

from stowplan_operator.apply import Writer
from stowplan_operator.client import Client
from stowplan_operator.decide.starts import ProvenStart
from stowplan_operator.definitions import Definitions
from stowplan_operator.freshness import Freshness
from stowplan_operator.kinds import DEPLOYMENT, DIFFUSION_DEPLOYMENT, Json, Kind
from stowplan_operator.metrics import Metrics
from stowplan_operator.observed import Observed
from stowplan_operator.queue import WorkQueue
from stowplan_operator.resync import Resync
from stowplan_operator.starts import Fetch, StartKeeper
from stowplan_operator.worker import Worker

RESYNC = 180.0


async def nobody_answers(start: ProvenStart) -> bytes:
    raise TimeoutError(start.ip)


class Process:
    """One operator. ``hears`` says whether its watches deliver, ``lag`` how many seconds late."""

    def __init__(self, server: FakeServer, *, lag: float = 0.0, fetch: Fetch = nobody_answers) -> None:
        self.server, self.lag, self.hears = server, lag, True
        self.metrics = Metrics()
        self.observed, self.queue = Observed(), WorkQueue()
        loop = asyncio.get_running_loop()
        self.freshness = Freshness(self.metrics, loop.time)
        client = Client(server)  # type: ignore[arg-type]
        self.definitions = Definitions(client, self.metrics)
        self.resync = Resync(
            client, self.observed, self.queue, self.freshness, self.metrics, definitions=self.definitions
        )
        self.starts = StartKeeper(client, self.observed, fetch)
        writer = Writer(client, self.observed, self.now, starts=self.starts, rolled_back=self.metrics.rolled_back)
        self.worker = Worker(
            self.queue, self.observed, writer, SETTINGS, self.metrics, self.now, lambda: self.definitions.dropped
        )
        self._tasks: list[asyncio.Task[None]] = []
        server.watchers.append(self._event)

    @staticmethod
    def now() -> datetime:
        seconds = asyncio.get_running_loop().time()
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=seconds)

    def start(self, workers: int = 2) -> None:
        self._tasks = [asyncio.create_task(self.resync.run(RESYNC))]
        self._tasks += [asyncio.create_task(self.worker.run(self.resync.listed)) for _ in range(workers)]

    async def stop(self) -> None:
        self.server.watchers.remove(self._event)
        for task in self._tasks:
            task.cancel()
        await self.starts.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def alive(self) -> bool:
        return not any(task.done() for task in self._tasks)

    def _event(self, type_: str, kind: Kind, raw: Json) -> None:
        if self.hears:
            asyncio.get_running_loop().call_later(self.lag, self._heard, type_, kind, raw)

    def _heard(self, type_: str, kind: Kind, raw: Json) -> None:
        self.freshness.heard(kind)
        key = self.observed.remove(kind, raw) if type_ == "DELETED" else self.observed.put(kind, raw)
        if key is not None:
            self.queue.add(key)


def controller(server: FakeServer, pods: int = 1) -> None:
    """The Deployment's controller has caught up."""
    found = server.objects.get(DEPLOYMENT.path(KEY.namespace, KEY.name))
    if found is not None:
        status = {"observedGeneration": found["metadata"]["generation"], "replicas": pods, "updatedReplicas": pods}
        server.change(DEPLOYMENT, KEY.name, lambda raw: raw.update(status=status))


def condition_of(server: FakeServer, type_: str) -> Json:
    found = server.get(DIFFUSION_DEPLOYMENT, KEY.name).get("status", {}).get("conditions", [])
    return next((entry for entry in found if entry["type"] == type_), {})
