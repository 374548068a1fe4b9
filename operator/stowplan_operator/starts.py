"""Fetches what proven starts leave from their agents, and keeps it in a ConfigMap that the next pods mount.

An optimisation and nothing more: it runs beside the reconciling, never before a gate, and what fails is dropped after a
few attempts. A serving container is not trusted: its answer is bounded in bytes and seconds, redirects are not
followed, and all that is done with it is to carry it, as text, to pods that prove it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp

from stowplan_api.contract import ANNOTATION_RECALIBRATE, STORED_START_PATH, Manager
from stowplan_operator.client import ApiError, Client
from stowplan_operator.decide.starts import ProvenStart, StartsToFetch
from stowplan_operator.kinds import CONFIG_MAP, Json
from stowplan_operator.observed import Key, Observed
from stowplan_operator.ownership import check_owner
from stowplan_operator.remembered import Remembered
from stowplan_operator.render import stored_starts
from stowplan_operator.render.naming import recalibration, starts_name

_logger = logging.getLogger(__name__)
LARGEST: Final = 900_000
"""Bytes of all stored starts of a deployment together: a ConfigMap ends at 1 MiB."""
ATTEMPTS: Final = 3
PAUSE: Final = 30.0
"""Seconds between two questions to one pod: an agent writes a start down a little after it opened its door, and one
that claims a new boot at every moment would have each of them written."""
_REMEMBERED: Final = 10_000
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, connect=3)
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16,128}")

Fetch = Callable[[ProvenStart], Awaitable[bytes]]
"""Brings one start's text. Raises OSError, TimeoutError, aiohttp.ClientError or ValueError."""


async def over_http(start: ProvenStart) -> bytes:
    """Ask the agent of a pod. Raises ValueError for an answer that is none, or too long."""
    host = f"[{start.ip}]" if ":" in start.ip else start.ip
    url = f"http://{host}:{start.port}{STORED_START_PATH}"
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"the answer was {answer.status}")
        text = bytearray()
        async for chunk in answer.content.iter_chunked(65_536):
            text += chunk
            if len(text) > LARGEST:
                raise ValueError(f"the answer is longer than {LARGEST} bytes")
        return bytes(text)


class StartKeeper:
    """Keeps stored starts, one deployment at a time in the background."""

    def __init__(self, client: Client, observed: Observed, fetch: Fetch = over_http) -> None:
        self._client = client
        self._observed = observed
        self._fetch = fetch
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._attempts: Remembered[str, int] = Remembered(_REMEMBERED)
        """How often a start was asked for."""
        self._asked: Remembered[tuple[str, str], float] = Remembered(_REMEMBERED)
        """When a pod was asked last."""

    def consider(self, wanted: StartsToFetch) -> None:
        """Begin to fetch, unless this deployment's starts are being fetched already. Returns at once."""
        metadata = wanted.dd["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        due = tuple(start for start in wanted.starts if self._is_due(key, start))
        if due and key not in self._running:
            task = asyncio.create_task(self._keep(key, wanted.dd, due), name=f"stored starts of {key.name}")
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def close(self) -> None:
        """Drop what is under way."""
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, key: Key, dd: Json, starts: tuple[ProvenStart, ...]) -> None:
        files: dict[str, str] = {}
        stamp = ""
        for start in starts:
            self._count(key, start)
            try:
                name, text = checked(await self._fetch(start))
            except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
                _logger.info("No stored start from pod %s/%s: %s", key.namespace, start.pod, error)
                continue
            # Oldest first: of one fingerprint the newest stays.
            files[name], stamp = text, start.stamp
        if not files:
            return
        try:
            await self._store(key, dd, files, stamp)
        except ApiError as error:
            _logger.info("The stored starts of %s/%s were not kept: %s", *key, error.message)

    async def _store(self, key: Key, dd: Json, files: dict[str, str], stamp: str) -> None:
        manifest = stored_starts(dd, files, stamp)
        existing = await self._client.get(CONFIG_MAP, key.namespace, starts_name(key.name))
        if existing is not None:
            check_owner(manifest, existing)
            annotations = existing["metadata"].get("annotations") or {}
            if annotations.get(ANNOTATION_RECALIBRATE, "") != recalibration(dd):
                return  # What was fetched is of before a recalibration that was asked for since.
            manifest = stored_starts(dd, fitting((existing.get("data") or {}) | files), stamp)
            head = {name: existing["metadata"][name] for name in ("uid", "resourceVersion")}
            manifest["metadata"] |= head
        self._observed.put(CONFIG_MAP, await self._client.apply(manifest, Manager.WORKLOAD))

    def _is_due(self, key: Key, start: ProvenStart) -> bool:
        times = self._attempts.get(_id(key, start)) or 0
        last = self._asked.get((key.namespace, start.pod))
        return times < ATTEMPTS and (last is None or asyncio.get_running_loop().time() >= last + PAUSE)

    def _count(self, key: Key, start: ProvenStart) -> None:
        name = _id(key, start)
        self._attempts.put(name, (self._attempts.get(name) or 0) + 1)
        self._asked.put((key.namespace, start.pod), asyncio.get_running_loop().time())


def checked(data: bytes) -> tuple[str, str]:
    """File name and text of a stored start. Raises ValueError for what is none; whether it is true is not judged."""
    text = data.decode()
    try:
        document: Any = json.loads(text)
    except RecursionError:
        raise ValueError("the answer is no stored start: it is nested too deep") from None
    fingerprint = document.get("fingerprint") if isinstance(document, dict) else None
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError("the answer is no stored start: it has no fingerprint")
    return f"{fingerprint}.json", text


def fitting(files: dict[str, str]) -> dict[str, str]:
    """As many files as a ConfigMap takes, the newest ones by when they say they were proven."""
    kept: dict[str, str] = {}
    size = 0
    for name, text in sorted(files.items(), key=lambda item: _proven_at(item[1]), reverse=True):
        size += len(name) + len(text.encode())
        if size <= LARGEST:
            kept[name] = text
    return dict(sorted(kept.items()))


def _proven_at(text: str) -> str:
    try:
        return f"{json.loads(text)['provenAt']}"
    except (ValueError, TypeError, KeyError):
        return ""


def _id(key: Key, start: ProvenStart) -> str:
    return f"{key.namespace} {start.stamp}"
