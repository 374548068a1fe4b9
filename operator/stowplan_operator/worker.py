"""Takes keys from the queue, decides, and has the decision written; what fails is tried again, later and later."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime

from stowplan_operator.apply import Writer
from stowplan_operator.decide import Settled, closings, decide
from stowplan_operator.decide.dropped import Dropped
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT
from stowplan_operator.metrics import Metrics
from stowplan_operator.observed import Key, Observed
from stowplan_operator.queue import WorkQueue
from stowplan_operator.settings import Settings

_logger = logging.getLogger(__name__)


class Worker:
    """Reconciles one key at a time; several workers share the queue, which never gives two of them the same key."""

    def __init__(
        self,
        queue: WorkQueue,
        observed: Observed,
        writer: Writer,
        settings: Settings,
        metrics: Metrics,
        now: Callable[[], datetime],
        dropped: Callable[[], Dropped] = Dropped,
    ) -> None:
        """``dropped`` says what the served definitions drop at the moment."""
        self._queue = queue
        self._observed = observed
        self._writer = writer
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._dropped = dropped
        self._refusals: dict[Key, tuple[str, ...]] = {}
        self._settled = Settled()

    async def run(self, listed: asyncio.Event) -> None:
        """Work for ever, from the first complete set of lists on."""
        await listed.wait()
        while True:
            key = await self._queue.get()
            try:
                await self.reconcile(key)
            finally:
                self._queue.done(key)
            # A resync fills the queue with keys that need no write, so nothing else here would let a watch event in.
            await asyncio.sleep(0)

    async def reconcile(self, key: Key) -> None:
        """One pass over one deployment. An error of ours is logged with its trace and retried like any other."""
        began = time.monotonic()
        try:
            result = await self._pass(key)
        except Exception:
            delay = self._queue.failed(key)
            _logger.exception("Reconciling %s/%s failed, again in %.1f s.", *key, delay)
            result = "error"
        kind = DIFFUSION_DEPLOYMENT.kind
        self._metrics.reconciles.labels(kind=kind, result=result).inc()
        self._metrics.reconcile_duration.labels(kind=kind).observe(time.monotonic() - began)

    async def _pass(self, key: Key) -> str:
        snapshot = self._observed.snapshot(key)
        refusals = self._refusals.get(key, ())
        try:
            decision = decide(snapshot, self._now(), self._settings, refusals, self._dropped(), self._settled)
        except Exception:
            # To judge pods takes less than all the rest: whatever that came across, no gate stays open for it.
            await self._writer.carry_out(closings(snapshot, self._now()))
            raise
        if snapshot.dd is None:
            self._refusals.pop(key, None)
        outcome = await self._writer.carry_out(decision)
        answers = tuple(outcome.refusals)
        if answers != refusals:
            # Told to the user by the next decision; it takes the same path as any other change.
            self._refusals[key] = answers
        if outcome.retry:
            self._queue.failed(key, outcome.retry_after)
        else:
            self._queue.succeeded(key)
        if outcome.writes or answers != refusals:
            self._queue.add(key)
        if outcome.wait:
            self._queue.later(key, outcome.wait)
        return "retry" if outcome.retry else "written" if outcome.writes else "unchanged"
