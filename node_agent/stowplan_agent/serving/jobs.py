"""One request on its way through the queue: what it is, how far it is, how it ended.

A job ends exactly once (completed or failed; a cancelled job is a failed one with that code), and keeps only values
after that: no exception, whose traceback would hold the device tensors of its frames alive.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stowplan_agent.serving.requests import GenerationRequest, GenerationResult

JobStatus = Literal["queued", "in_progress", "completed", "failed"]
ErrorCode = Literal["failed", "out_of_memory", "cancelled"]


@dataclass(frozen=True)
class JobError:
    """Why a job failed: a stable code, and one sentence for the client."""

    code: ErrorCode
    message: str


class Job:
    """One submitted request. Clients read and cancel; ``begin``, ``complete`` and ``fail`` belong to the queue."""

    def __init__(self, request: GenerationRequest, created_at: int, withdraw: Callable[[Job], None]) -> None:
        self.id = f"{request.kind}_{uuid.uuid4().hex}"
        self.request = request
        self.created_at = created_at
        """Unix seconds."""
        self.completed_at: int | None = None
        self.status: JobStatus = "queued"
        self.error: JobError | None = None
        self.result: GenerationResult | None = None
        """The images of a completed image request. A video keeps its encoded bytes only."""
        self.content: bytes | None = None
        """The MP4 of a completed video request."""
        self._withdraw = withdraw
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._done = threading.Event()
        self._polls = 0
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """Whether the job has ended, well or not."""
        return self._done.is_set()

    @property
    def progress(self) -> int:
        """Percent: steps begun of steps asked for, as seen by the poll between steps; 100 only when completed."""
        if self.status == "completed":
            return 100
        return min(99, 100 * self._polls // self.request.steps)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody asked for its end."""
        return self._cancel.is_set()

    def cancel(self) -> None:
        """Ask for its end: at once while it waits, within one step while it runs, no effect afterwards."""
        self._cancel.set()
        self._withdraw(self)

    def poll(self) -> bool:
        """Whether to stop; called by the run callable once after each step, which is what progress counts."""
        self._polls += 1
        return self._cancel.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it has ended, at most ``timeout`` seconds; whether it has."""
        return self._done.wait(timeout)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once when it ends, from whatever thread ends it; at once when it has ended already."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def begin(self) -> None:
        """The worker has taken it."""
        self.status = "in_progress"

    def complete(self, now: int, *, result: GenerationResult | None = None, content: bytes | None = None) -> bool:
        """End well at Unix second ``now``; False, and nothing changes, when it had ended before."""
        return self._end(now, "completed", None, result, content)

    def fail(self, now: int, error: JobError) -> bool:
        """End badly at Unix second ``now``; False, and nothing changes, when it had ended before."""
        return self._end(now, "failed", error, None, None)

    def _end(
        self,
        now: int,
        status: JobStatus,
        error: JobError | None,
        result: GenerationResult | None,
        content: bytes | None,
    ) -> bool:
        with self._lock:
            if self._done.is_set():
                return False
            self.result, self.content, self.error = result, content, error
            self.completed_at = now
            self.status = status
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True
