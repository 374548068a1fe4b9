"""The operator as one object: its parts, wired together once, with a start, a stop and a complaint."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client import start_http_server

from stowplan_operator.apply import Writer
from stowplan_operator.client import Client, connect
from stowplan_operator.definitions import Definitions
from stowplan_operator.freshness import Freshness
from stowplan_operator.kinds import Json, Kind
from stowplan_operator.metrics import Metrics
from stowplan_operator.observed import Observed
from stowplan_operator.queue import WorkQueue
from stowplan_operator.resync import Resync
from stowplan_operator.settings import Settings
from stowplan_operator.starts import StartKeeper
from stowplan_operator.worker import Worker

_STALE_RESYNCS: Final = 3
"""Missed lists until the liveness probe fails."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Program:
    """Watches feed `heard`; lists feed the same; workers write."""

    def __init__(self, settings: Settings, now: Callable[[], datetime] = _utc_now) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._now = now
        self._observed = Observed()
        self._queue = WorkQueue()
        self._freshness = Freshness(self.metrics)
        self._client: Client | None = None
        self._starts: StartKeeper | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._close_metrics: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Connect, list, and start the workers. Returns after the first lists: kopf finds the kinds to watch then.

        Raises what keeps it from starting, with nothing left running. A server that is away does not: it is waited for.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._client = await connect(self.settings.kubeconfig, self.metrics.count_request)
        definitions = Definitions(self._client, self.metrics)
        resync = Resync(
            self._client,
            self._observed,
            self._queue,
            self._freshness,
            self.metrics,
            self.settings.namespaces,
            definitions,
        )
        self._starts = StartKeeper(self._client, self._observed)
        writer = Writer(
            self._client, self._observed, self._now, self.metrics.gate_opened, self._starts, self.metrics.rolled_back
        )
        worker = Worker(
            self._queue,
            self._observed,
            writer,
            self.settings,
            self.metrics,
            self._now,
            lambda: definitions.dropped,
        )
        server, thread = start_http_server(self.settings.metrics_port, registry=self.metrics.registry)
        self._close_metrics = _closer(server, thread)
        listing = asyncio.create_task(resync.run(self.settings.resync_seconds), name="resync")
        self._tasks = [listing]
        self._tasks += [
            asyncio.create_task(worker.run(resync.listed), name=f"worker {number}")
            for number in range(self.settings.workers)
        ]
        # What is listed is most of what is ever held, and no part of it refers to itself: nothing to collect there.
        gc.disable()
        try:
            await _first(resync.listed, listing)
            gc.collect()
            gc.freeze()
        finally:
            gc.enable()

    async def stop(self) -> None:
        """End the workers; a write that is under way is cancelled, and the next process repeats it if needed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._starts is not None:
            await self._starts.close()
        if self._client is not None:
            await self._client.close()
        self._close_metrics()

    def heard(self, kind: Kind, type_: str | None, raw: Json) -> None:
        """One event of a watch."""
        self._freshness.heard(kind)
        key = self._observed.remove(kind, raw) if type_ == "DELETED" else self._observed.put(kind, raw)
        if key is not None:
            self._queue.add(key)

    def complaint(self) -> str:
        """Why this process should be restarted; empty when it should not."""
        ended = [_end(task) for task in self._tasks if task.done()]
        if ended:
            return "; ".join(ended)
        return self._freshness.complaint(_STALE_RESYNCS * self.settings.resync_seconds)


async def _first(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Wait for the event. Raises what ended the task, if that comes first: nobody would set the event then."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        if not event.is_set():
            task.result()
    finally:
        waiting.cancel()


def _end(task: asyncio.Task[None]) -> str:
    """That a task has ended, and of what."""
    error = None if task.cancelled() else task.exception()
    return f"{task.get_name()} ended" + (f": {type(error).__name__}: {error}" if error is not None else "")


def _closer(server: Any, thread: Any) -> Callable[[], None]:
    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
