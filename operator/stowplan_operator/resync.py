"""Lists everything at start and every few minutes, and lays it over what the watches said.

This, not luck, is what makes a lost event harmless: the lists are compared with what is known, and every deployment
is reconciled again. Nothing is reconciled before the first complete set, or children that exist would look missing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from stowplan_api.contract import LABEL_DEPLOYMENT
from stowplan_operator.client import ApiError, Client
from stowplan_operator.definitions import Definitions
from stowplan_operator.freshness import Freshness
from stowplan_operator.kinds import CONFIG_MAP, LISTED, SELECTED_BY_LABEL, Json, Kind
from stowplan_operator.metrics import Metrics
from stowplan_operator.observed import Observed
from stowplan_operator.queue import WorkQueue
from stowplan_operator.trimming import trimmed

_logger = logging.getLogger(__name__)
_LONGEST_DELAY: Final = 30.0


class HistoryError(RuntimeError):
    """Versions that were seen are no more: nothing that is known can be told from what is newer."""


class Resync:
    """Keeps what was observed complete. ``listed`` is set once the first lists have all arrived."""

    def __init__(
        self,
        client: Client,
        observed: Observed,
        queue: WorkQueue,
        freshness: Freshness,
        metrics: Metrics,
        namespaces: tuple[str, ...] = (),
        definitions: Definitions | None = None,
    ) -> None:
        self._client = client
        self._observed = observed
        self._queue = queue
        self._freshness = freshness
        self._metrics = metrics
        self._namespaces = namespaces
        self._definitions = definitions
        self.listed = asyncio.Event()

    async def run(self, every: float) -> None:
        """List for ever; after a failed list, again after a delay that doubles up to half a minute.

        Raises `HistoryError`: only a new process knows nothing, and the liveness probe asks for one.
        """
        delay = 1.0
        while True:
            try:
                await self.once()
            except ApiError as error:
                _logger.warning("Listing failed, again in %.0f s: %s", delay, error.message)
                await asyncio.sleep(delay)
                delay = min(_LONGEST_DELAY, delay * 2)
                continue
            delay = 1.0
            await asyncio.sleep(every)

    async def once(self) -> None:
        """List every kind and have every deployment reconciled. Raises `ApiError`; what came until then is kept."""
        if self._definitions is not None:
            await self._definitions.check()
        for kind in LISTED:
            try:
                for namespace in self._namespaces or (None,):
                    await self._list(kind, namespace)
            except ApiError as error:
                if kind is not CONFIG_MAP or error.transient:
                    raise
                # Stored starts make starts shorter; no gate may wait for the right to read them.
                _logger.warning("Stored starts cannot be listed, so none are kept: %s", error.message)
            self._freshness.heard(kind)
            self._metrics.objects.labels(kind=kind.kind).set(self._observed.count(kind))
        for key in self._observed.deployments():
            self._queue.add(key, listed=True)
        if not self.listed.is_set():
            _logger.info("Listed everything for the first time.")
            self.listed.set()

    async def _list(self, kind: Kind, namespace: str | None) -> None:
        labels = LABEL_DEPLOYMENT if kind in SELECTED_BY_LABEL else ""
        items: list[Json] = []
        version, before = 0, self._observed.newest(kind)
        async for page, of_list in self._client.pages(kind, namespace, labels):
            items.extend(trimmed(kind, item) for item in page)
            version = of_list
        if version < before:
            message = (
                f"the API server's history went back: {kind.kind} is at version {version}, and was at {before} "
                "(restored from a backup?); the operator starts anew"
            )
            _logger.error("%s", message)
            raise HistoryError(message)
        self._observed.replace(kind, items, version, (namespace,) if namespace else ())
