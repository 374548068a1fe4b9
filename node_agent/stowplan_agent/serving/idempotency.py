"""A request that is sent again with the same key is the same request: it is run once, and answered alike.

A client whose connection broke cannot know whether its request was taken. It sends an ``Idempotency-Key`` with the
first and every further attempt, and meets the job of the first. A key lives as long as its job waits, runs or has its
result; a job that failed frees its key, since whoever tries again wants another try.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from fastapi import Header

from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.fields import Body
from stowplan_agent.serving.jobs import Job

LONGEST_KEY: Final = 255
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_KEY,
        description="the same with every attempt at one request: it is run once",
    ),
]
"""What a route takes."""


class Keys:
    """Keys in use, with the body that each came with and the job that it led to. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: dict[str, tuple[str, Job]] = {}

    def claim(self, key: str, body: Body, submit: Callable[[], Job], *, followed: bool) -> tuple[Job, bool]:
        """The job of a key, and whether an earlier request has made it; ``submit`` makes it where there is none.

        ``followed``: one more client waits for its end. Raises ApiError (422) for another body than the first came
        with, and what ``submit`` raises; the key is free then.
        """
        digest = _digest(body)
        with self._lock:
            self._forget()
            former = self._claimed.get(key)
            if former is not None:
                before, job = former
                if before != digest:
                    message = f"Idempotency-Key {key[:60]!r} came with another request before; use a key for each"
                    raise ApiError(422, message, code="idempotency_key_reused", param="Idempotency-Key")
                if job.cancelled is None and (not followed or job.follow()):
                    return job, True
            job = submit()
            self._claimed[key] = (digest, job)
            return job, False

    def holds(self, key: str) -> bool:
        """Whether an earlier request came with this key, and its job waits, runs or has its result."""
        former = self._claimed.get(key)
        return former is not None and _holds(former[1])

    def __len__(self) -> int:
        return len(self._claimed)

    def _forget(self) -> None:
        for key in [key for key, (_, job) in self._claimed.items() if not _holds(job)]:
            del self._claimed[key]


def _holds(job: Job) -> bool:
    if not job.done:
        return True
    parts = () if job.content is None else job.content.parts
    return bool(parts) and all(part.exists() for part in parts if isinstance(part, Path))


def _digest(body: Body) -> str:
    return hashlib.sha256(f"{type(body).__name__}{body.model_dump_json()}".encode()).hexdigest()
