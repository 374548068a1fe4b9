"""One request on its way through the queue: what it is, how far it is, how it ended.

A job ends exactly once (completed or failed; a cancelled job is a failed one with that code), and keeps only values
after that: no exception, whose traceback would hold the device tensors of its frames alive.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stowplan_agent.serving.contents import Content
from stowplan_agent.serving.requests import GenerationRequest

JobStatus = Literal["queued", "in_progress", "completed", "failed"]
ErrorCode = Literal["failed", "out_of_memory", "cancelled", "deadline_exceeded", "stopping"]


@dataclass(frozen=True)
class JobError:
    """Why a job failed: a stable code, and one sentence for the client."""

    code: ErrorCode
    message: str


Told = Callable[[], None]
CANCELLED: Final = JobError("cancelled", "the request was cancelled")
_log = logging.getLogger(__name__)


class Job:
    """One submitted request. Clients read, follow and cancel; what begins and ends it belongs to the queue."""

    def __init__(
        self,
        request: GenerationRequest,
        created_at: int,
        withdraw: Callable[[Job], None],
        *,
        kept: bool = False,
        handed: bool = False,
    ) -> None:
        self.id = f"{request.kind}_{time.time_ns():016x}{secrets.token_hex(8)}"
        """Sorts by age, so that pages of a list hold while what is on them is deleted."""
        self.request = request
        self.created_at = created_at
        """Unix seconds."""
        self.kept = kept
        """Whether its content goes to the shelf; else it lives as long as whoever waits for it."""
        self.handed = handed
        """Whether those who follow it are given what it made, which then does not hang on the shelf's room for it."""
        self.in_hand: tuple[bytes, ...] = ()
        """What a job made that is both: for those who follow it, until the last of them leaves."""
        self.completed_at: int | None = None
        self.status: JobStatus = "queued"
        self.error: JobError | None = None
        self.content: Content | None = None
        """What a completed job made."""
        self.collected = False
        """Whether its client has been told how it ended, and given what it made."""
        self.parts_sent: set[int] = set()
        """Parts of its content that were fetched by URL."""
        self._withdraw = withdraw
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._cancelled: JobError | None = None
        self._followers = 0
        self._polls = 0
        self._callbacks: list[Told] = []
        self._watchers: list[Told] = []

    @property
    def done(self) -> bool:
        """Whether the job has ended, well or not."""
        return self._done.is_set()

    @property
    def step(self) -> int:
        """Steps done, over all images of the request, as seen by the poll between steps."""
        return min(self._polls, self.request.all_steps)

    @property
    def progress(self) -> int:
        """Percent of the steps; 100 only when completed."""
        return 100 if self.status == "completed" else min(99, 100 * self.step // self.request.all_steps)

    @property
    def cancelled(self) -> JobError | None:
        """Why somebody asked for its end, if anybody did."""
        return self._cancelled

    def cancel(self, why: JobError = CANCELLED) -> None:
        """Ask for its end: at once while it waits, within one step while it runs, no effect afterwards."""
        with self._lock:
            if self._done.is_set():
                return
            self._cancelled = self._cancelled or why
        self._withdraw(self)

    def follow(self) -> bool:
        """One more client waits for its end; False where it is too late, as the job is to end without a result."""
        with self._lock:
            if self._cancelled is not None or self.status == "failed":
                return False
            self._followers += 1
            return True

    def leave(self) -> None:
        """A client no longer waits. A job that nobody waits for any more is cancelled."""
        with self._lock:
            self._followers -= 1
            if self._followers:
                return
            self.in_hand = ()
            if self._done.is_set():
                return
            self._cancelled = self._cancelled or CANCELLED
        self._withdraw(self)

    def poll(self) -> bool:
        """Whether to stop; called by the run callable once after each step, which is what progress counts."""
        self._polls += 1
        self._tell()
        return self._cancelled is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it has ended, at most ``timeout`` seconds; whether it has."""
        return self._done.wait(timeout)

    def when_done(self, callback: Told) -> None:
        """Call back once when it ends, from whatever thread ends it; at once when it has ended already."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def watch(self, callback: Told) -> Told:
        """Call back whenever it begins, steps or ends, from whatever thread does it; returns what takes that back."""
        with self._lock:
            self._watchers.append(callback)

        def unwatch() -> None:
            with self._lock:
                self._watchers.remove(callback)

        return unwatch

    def begin(self) -> None:
        """The worker has taken it."""
        self.status = "in_progress"
        self._tell()

    def complete(self, now: int, content: Content, in_hand: Sequence[bytes] = (), *, first: Told | None = None) -> bool:
        """End well at Unix second ``now``; False, and nothing changes, when it had ended or is to be cancelled.

        ``first`` hears of it before anybody who waits for it.
        """
        return self._end(now, None, content, in_hand, first)

    def fail(self, now: int, error: JobError, *, first: Told | None = None) -> bool:
        """End badly at Unix second ``now``; False, and nothing changes, when it had ended before."""
        return self._end(now, error, None, (), first)

    def _end(
        self, now: int, error: JobError | None, content: Content | None, in_hand: Sequence[bytes], first: Told | None
    ) -> bool:
        with self._lock:
            if self._done.is_set() or (error is None and self._cancelled is not None):
                return False
            self._call([] if first is None else [first])
            self.content, self.error = content, error
            self.in_hand = tuple(in_hand)  # also before its first follower has come, as of a quick pipeline
            self.completed_at = now
            self.status = "completed" if error is None else "failed"
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        self._call(callbacks)
        self._tell()
        return True

    def _tell(self) -> None:
        self._call(tuple(self._watchers))

    def _call(self, callbacks: Iterable[Told]) -> None:
        """Call each. One that fails costs neither the others nor the thread that runs the requests."""
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("who follows %s could not be told", self.id)
