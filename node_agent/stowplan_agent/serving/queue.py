"""The bounded queue in front of the one pipeline.

One worker thread owns the pipeline, because there is one device and diffusers pipelines keep state while they run. The
queue is there before the pipeline is: it starts closed, and the lifecycle opens it with the run and admission callables
of the validated placement. Whatever a request does (fails, runs out of memory, is cancelled), the next one runs.
Videos are encoded on a second thread, so that the device does not wait for an encoder.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from stowplan_agent.serving import media
from stowplan_agent.serving.attempt import CANCELLED, Admit, Recover, Run, give_back, run_one
from stowplan_agent.serving.jobs import Job, JobError
from stowplan_agent.serving.metrics import AgentMetrics, RequestStatus
from stowplan_agent.serving.requests import GenerationRequest, GenerationResult, Refused

_log = logging.getLogger(__name__)


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
        limit: int = 16,
        *,
        metrics: AgentMetrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit = limit
        """Requests that may wait; the one that runs is not counted."""
        self._metrics = metrics or AgentMetrics()
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._last_seconds = 1.0
        self._run: Run | None = None
        self._admit: Admit = lambda request: None
        self._recover: Recover = lambda: None
        self._stopping = self._paused = False
        self._worker: threading.Thread | None = None
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="stowplan-encode")
        self._encoding: Future[None] | None = None
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

    def submit(self, request: GenerationRequest) -> Job:
        """Queue a request. Raises `Closed`, `Refused` (does not fit) or `Full`; then nothing was queued."""
        if self._run is None:
            raise Closed("no pipeline is ready yet")
        try:
            self._admit(request)
        except Refused:
            self._metrics.count_request("refused")
            raise
        with self._changed:
            if self._run is None:
                raise Closed("the server is stopping")
            if len(self._waiting) >= self.limit:
                self._metrics.count_request("rejected")
                raise Full(len(self._waiting), self.limit, max(1, min(600, round(self._last_seconds))))
            job = Job(request, int(self._clock()), self._withdraw)
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
        """Cancel everything, take nothing more, wait at most ``timeout`` seconds for the worker; whether it ended."""
        with self._changed:
            self._stopping, self._run = True, None
            jobs = [*self._waiting, *([self._running] if self._running else [])]
            self._changed.notify_all()
        for job in jobs:
            job.cancel()
        if self._worker is not None:
            self._worker.join(timeout)
            if self._worker.is_alive():
                return False
        self._encoder.shutdown(wait=True)
        return True

    def _withdraw(self, job: Job) -> None:
        """End a cancelled job now if it still waits; one that runs ends at its next poll."""
        with self._changed:
            if job not in self._waiting:
                return
            self._waiting.remove(job)
            self._metrics.set_queue_requests(len(self._waiting))
        self._fail(job, CANCELLED)

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
        job.begin()
        error = run_one(run, job, self._finish)
        if error is not None:
            give_back(recover)
            self._fail(job, error)
        with self._changed:
            self._running = None
            self._changed.notify_all()
        return True

    def _finish(self, job: Job, result: GenerationResult) -> None:
        """Hand a good result to whoever waits; a video by way of the encoder, at most one of them behind."""
        self._last_seconds = result.seconds
        if job.request.kind == "image":
            self._complete(job, result.seconds, result=result)
            return
        if self._encoding is not None:
            self._encoding.result()
        self._encoding = self._encoder.submit(self._encode, job, result)

    def _encode(self, job: Job, result: GenerationResult) -> None:
        try:
            content = media.mp4(result.frames, result.fps)
        except Exception as error:
            _log.exception("encoding %s failed", job.id)
            self._fail(job, JobError("failed", f"the video could not be encoded: {error}"))
        else:
            self._complete(job, result.seconds, content=content)

    def _complete(
        self, job: Job, seconds: float, *, result: GenerationResult | None = None, content: bytes | None = None
    ) -> None:
        if job.complete(int(self._clock()), result=result, content=content):
            self._metrics.count_request("completed")
            size = (job.request.width, job.request.height, job.request.frames)
            self._metrics.observe_request(seconds, size)

    def _fail(self, job: Job, error: JobError) -> None:
        if job.fail(int(self._clock()), error):
            status: RequestStatus = error.code
            self._metrics.count_request(status)
