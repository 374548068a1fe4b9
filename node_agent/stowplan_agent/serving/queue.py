"""The bounded queue in front of the one pipeline.

One worker thread owns the pipeline, because there is one device and diffusers pipelines keep state while they run. The
queue is there before the pipeline is: it starts closed, and the lifecycle opens it with the run and admission callables
of the validated placement. Whatever a request does (fails, runs out of memory, is cancelled), the next one runs.
Results are encoded on a second thread (`endings`), so that the device does not wait for an encoder.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from stowplan_agent.serving.attempt import Admit, Recover, Run, serve_one
from stowplan_agent.serving.endings import Endings
from stowplan_agent.serving.jobs import CANCELLED, Job, JobError
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.requests import GenerationRequest, Refused
from stowplan_agent.serving.shelf import Shelf

STOPPING: Final = JobError("stopping", "the server stops before this request could be finished; send it again")
QUEUE_LIMIT: Final = 16


class Closed(Exception):  # noqa: N818 - an outcome, named as one
    """No pipeline is installed, or it was taken away."""


class Full(Exception):  # noqa: N818 - an outcome, named as one
    """As many requests wait as may wait. ``retry_after`` is in whole seconds."""

    def __init__(self, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"{waiting} requests are waiting and the queue holds {limit}; try again in about {retry_after} s"
        )
        self.retry_after = retry_after


class RequestQueue:
    """Takes requests from any thread and runs them one at a time, in order, on its own thread."""

    def __init__(
        self,
        run: Run | None = None,
        admit: Admit | None = None,
        limit: int = QUEUE_LIMIT,
        *,
        metrics: AgentMetrics | None = None,
        clock: Callable[[], float] = time.time,
        shelf: Shelf | None = None,
    ) -> None:
        self.limit = limit
        """Requests that may wait; the one that runs is not counted."""
        self.shelf = Shelf() if shelf is None else shelf
        """Where jobs that are kept are found again."""
        self._metrics = metrics or AgentMetrics()
        self._clock = clock
        self._endings = Endings(self.shelf, self._metrics, clock, self._ended)
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._open: set[Job] = set()
        """Jobs that have not ended: they wait, run, or are encoded."""
        self._run: Run | None = None
        self._admit: Admit = lambda request: None
        self._recover: Recover = lambda: None
        self.is_shut = False
        """Whether nothing is taken any more."""
        self._stopping = self._paused = False
        self._worker: threading.Thread | None = None
        if run is not None:
            self.open(run, admit or self._admit)

    def open(self, run: Run, admit: Admit, recover: Recover | None = None) -> None:
        """Install the pipeline and start to serve. Calling it again replaces the callables for the next request."""
        with self._changed:
            if self._stopping:
                raise Closed("the queue was stopped and does not open again")
            self._run, self._admit = run, admit
            self._recover = recover or self._recover
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="stowplan-pipeline", daemon=True)
                self._worker.start()
            self._changed.notify_all()

    def pause(self, timeout: float) -> bool:
        """Begin no further request, those that wait go on waiting; whether none runs after ``timeout`` seconds."""
        with self._changed:
            self._paused = True
            return self._changed.wait_for(lambda: self._running is None, timeout)

    def resume(self) -> None:
        """Begin requests again."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def shut(self) -> None:
        """Take nothing more, for good; what waits and what runs goes on."""
        with self._changed:
            self.is_shut = True

    def wait_until_idle(self, timeout: float) -> bool:
        """Block until every job has ended, at most ``timeout`` seconds; whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout)

    def submit(self, request: GenerationRequest, *, kept: bool = False, handed: bool = False) -> Job:
        """Queue a request; its job goes to the shelf if it is a video or is ``kept``; ``handed`` as a `Job` has it.

        Raises `Closed`, `Refused` (does not fit) or `Full`; then nothing was queued.
        """
        if self._run is None:
            raise Closed("no pipeline is ready yet")
        try:
            self._admit(request)
        except Refused:
            self._metrics.count_request("refused")
            raise
        with self._changed:
            if self._run is None or self.is_shut:
                raise Closed("the server is stopping")
            if len(self._waiting) >= self.limit:
                self._metrics.count_request("rejected")
                raise Full(len(self._waiting), self.limit, max(1, min(600, round(self._endings.last_seconds))))
            kept = kept or request.kind == "video"
            job = Job(request, int(self._clock()), self._withdraw, kept=kept, handed=handed)
            if job.kept:
                self.shelf.put(job)
            self._open.add(job)
            self._waiting.append(job)
            self._metrics.set_queue_requests(len(self._waiting))
            self._changed.notify_all()
        return job

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        with self._changed:
            return len(self._waiting)

    def stop(self, timeout: float = 30.0) -> bool:
        """End everything and take nothing more; whether the worker has ended after ``timeout`` seconds.

        What waits fails at once, what runs after its step, or with the timeout: then every job has ended.
        """
        until = time.monotonic() + timeout
        with self._changed:
            self.is_shut = self._stopping = True
            self._run = None
            self._changed.notify_all()
            jobs = list(self._open)
        for job in jobs:
            job.cancel(STOPPING)
        if self._worker is not None:
            self._worker.join(timeout)
        ended = self._worker is None or not self._worker.is_alive()
        ended = self._endings.stop(max(0.0, until - time.monotonic())) and ended
        for job in jobs:
            self._endings.fail(job, STOPPING)
        return ended

    def _withdraw(self, job: Job) -> None:
        """End a cancelled job now if it still waits; one that runs ends at its next poll."""
        with self._changed:
            if job not in self._waiting:
                return
            self._waiting.remove(job)
            self._metrics.set_queue_requests(len(self._waiting))
        self._endings.fail(job, job.cancelled or CANCELLED)

    def _ended(self, job: Job) -> None:
        with self._changed:
            self._open.discard(job)
            self._changed.notify_all()

    def _work(self) -> None:
        while self._one():
            pass

    def _one(self) -> bool:
        """Wait for a job and run it; False when the queue stops. Its locals die with it: nothing of a job lingers."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or (self._waiting and not self._paused))
            if self._stopping or self._run is None:
                return False
            job = self._running = self._waiting.popleft()
            run, recover = self._run, self._recover
            self._metrics.set_queue_requests(len(self._waiting))
        serve_one(run, recover, job, self._endings)
        with self._changed:
            self._running = None
            self._changed.notify_all()
        return True
