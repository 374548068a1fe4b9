"""Where video jobs are found again by their id, within a bound.

Finished videos live in host memory, which the pod's limit charges, so the shelf is bounded in number and in bytes; the
oldest finished job is dropped first. Jobs that still wait or run are never dropped: the queue bounds those.
"""

from __future__ import annotations

import threading

from stowplan_agent.serving.jobs import Job

MOST_JOBS = 64
MOST_BYTES = 256 << 20


class Shelf:
    """Video jobs by id, oldest first. Safe to use from any thread."""

    def __init__(self, most_jobs: int = MOST_JOBS, most_bytes: int = MOST_BYTES) -> None:
        self.most_jobs = most_jobs
        """Finished jobs kept."""
        self.most_bytes = most_bytes
        """Bytes of finished videos kept; the newest one is kept even if it alone is larger."""
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def put(self, job: Job) -> None:
        """Add a job, and drop what no longer fits each time one ends."""
        with self._lock:
            self._jobs[job.id] = job
        job.when_done(self._trim)

    def get(self, job_id: str) -> Job | None:
        """The job of an id, or None when there is none or it was dropped."""
        with self._lock:
            return self._jobs.get(job_id)

    def take(self, job_id: str) -> Job | None:
        """Remove and return the job of an id, or None."""
        with self._lock:
            return self._jobs.pop(job_id, None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._jobs)

    def _trim(self) -> None:
        with self._lock:
            finished = [job for job in self._jobs.values() if job.done]
            held = sum(len(job.content or b"") for job in finished)
            for job in finished[:-1]:
                if len(finished) <= self.most_jobs and held <= self.most_bytes:
                    return
                del self._jobs[job.id]
                finished = finished[1:]
                held -= len(job.content or b"")
