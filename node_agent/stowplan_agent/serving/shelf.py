"""Where jobs are found again by their id, and their files, within bounds.

What was made is kept on disk, so that it costs no memory of the pod, and the disk is bounded too: the oldest finished
job makes room for a newer one. Jobs that still wait or run are never dropped: the queue bounds those. A file has an
owner at every moment; whoever takes a job off the shelf takes its files with it, even those that are being written.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stowplan_agent.serving.jobs import CANCELLED, Job
from stowplan_agent.serving.requests import Cancelled, Failed, Kind
from stowplan_agent.serving.results_folder import ResultsFolder, remove_files

MOST_JOBS: Final = 256
MOST_BYTES: Final = 1 << 30
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_log = logging.getLogger(__name__)


class Shelf:
    """Jobs by id, oldest first. Safe to use from any thread."""

    def __init__(
        self, most_jobs: int = MOST_JOBS, most_bytes: int = MOST_BYTES, folder: ResultsFolder | None = None
    ) -> None:
        self.most_jobs = most_jobs
        """Finished jobs kept: so many with files, and so many without, which push out none of the former."""
        self.most_bytes = most_bytes
        """Bytes of files, those that are being written included."""
        self._folder = folder or ResultsFolder()
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._files: dict[str, list[Path]] = {}
        self._bytes: dict[str, int] = {}

    def put(self, job: Job) -> None:
        """Add a job, and drop what no longer fits each time one ends."""
        with self._changed:
            self._jobs[job.id] = job
        job.when_done(self._trim)

    def get(self, job_id: str) -> Job | None:
        """The job of an id, or None when there is none or it was dropped."""
        with self._changed:
            return self._jobs.get(job_id)

    def take(self, job_id: str) -> Job | None:
        """Remove and return the job of an id, or None. Its files are gone."""
        with self._changed:
            job = self._jobs.pop(job_id, None)
            files = self._let_go(job_id)
            self._changed.notify_all()
        remove_files(files)
        return job

    def page(self, kind: Kind, after: str | None, limit: int, *, newest_first: bool) -> tuple[list[Job], bool]:
        """At most ``limit`` jobs of a kind behind the id ``after`` in the order asked for; and whether there are more.

        ``after`` need not be there any more: ids sort by age.
        """
        with self._changed:
            jobs = [job for job in self._jobs.values() if job.request.kind == kind]
        jobs.sort(key=lambda job: job.id, reverse=newest_first)
        if after is not None:
            jobs = [job for job in jobs if (job.id < after if newest_first else job.id > after)]
        return jobs[:limit], len(jobs) > limit

    def store(self, job: Job, parts: Sequence[bytes], suffix: str) -> tuple[Path, ...]:
        """Write what a job made, a file a part, after room was made for it.

        Raises `Failed` where there is no room, and `Cancelled` where the job was taken off the shelf meanwhile.
        """
        need = sum(map(len, parts))
        if need > self.most_bytes:
            raise Failed(f"the result has {need} bytes and all results may have {self.most_bytes}; ask for less")
        with self._changed:
            if job.id not in self._jobs:
                raise Cancelled
            doomed = self._make_room(need)
            self._bytes[job.id] = need
            files = self._files[job.id] = []
        remove_files(doomed)
        self._write(job, [f"{job.id}-{index}{suffix}" for index in range(len(parts))], parts, files)
        with self._changed:
            if job.id in self._jobs:
                return tuple(files)
        remove_files(files)
        raise Cancelled

    def erase(self, job: Job) -> None:
        """Remove the files of a job, which stays."""
        with self._changed:
            files = self._let_go(job.id)
        remove_files(files)

    def collect(self, job: Job) -> None:
        """The client of a job knows how it ended, and has what it made."""
        with self._changed:
            job.collected = True
            self._changed.notify_all()

    def collect_part(self, job: Job, index: int) -> None:
        """The client of a completed job has one of its parts; with the last it has what was made."""
        with self._changed:
            job.parts_sent.add(index)
            if job.content is not None and len(job.parts_sent) == len(job.content.parts):
                job.collected = True
                self._changed.notify_all()

    def wait_until_collected(self, since: float, timeout: float) -> bool:
        """Block until no job waits, runs, or ended at or after Unix second ``since`` without having been collected.

        At most ``timeout`` seconds; whether it is so.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not any(_owed(job, since) for job in self._jobs.values()), timeout)

    @property
    def held_bytes(self) -> int:
        """Bytes of all files."""
        with self._changed:
            return sum(self._bytes.values())

    def __len__(self) -> int:
        with self._changed:
            return len(self._jobs)

    def close(self) -> None:
        """Remove every file."""
        with self._changed:
            self._files, self._bytes = {}, {}
        self._folder.close()

    def _trim(self) -> None:
        with self._changed:
            finished = [job for job in self._jobs.values() if job.done]
            doomed: list[Path] = []
            for with_files in (True, False):
                alike = [job for job in finished if (job.id in self._bytes) is with_files]
                for job in alike[: max(0, len(alike) - self.most_jobs)]:
                    doomed += self._drop(job)
            self._changed.notify_all()
        remove_files(doomed)

    def _write(self, job: Job, names: Sequence[str], parts: Sequence[bytes], files: list[Path]) -> None:
        """Write the files, and while the disk has less room than the bound, drop the oldest for them. Raises Failed."""
        while True:
            try:
                return self._folder.write(names, parts, files)
            except OSError as error:
                remove_files(files)
                with self._changed:
                    oldest = self._oldest() if error.errno in _FULL else None
                    doomed = [] if oldest is None else self._drop(oldest)
                if oldest is None:
                    raise self._not_stored(job, error) from None
                _log.warning("the disk is full: %s makes room for %s", oldest.id, job.id)
                remove_files(doomed)

    def _not_stored(self, job: Job, error: OSError) -> Failed:
        self.erase(job)
        _log.warning("what %s made cannot be stored: %s", job.id, error)
        way_out = "free the server's disk" if error.errno in _FULL else "the server's log names the file"
        return Failed(f"the result cannot be stored: {error.strerror or error}; {way_out}")

    def _make_room(self, need: int) -> list[Path]:
        doomed: list[Path] = []
        while sum(self._bytes.values()) + need > self.most_bytes and (oldest := self._oldest()) is not None:
            doomed += self._drop(oldest)
        return doomed

    def _oldest(self) -> Job | None:
        """The first job that has ended and has files."""
        return next((job for job in self._jobs.values() if job.done and job.id in self._bytes), None)

    def _drop(self, job: Job) -> list[Path]:
        del self._jobs[job.id]
        return self._let_go(job.id)

    def _let_go(self, job_id: str) -> list[Path]:
        self._bytes.pop(job_id, None)
        return self._files.pop(job_id, [])


def _owed(job: Job, since: float) -> bool:
    """Whether somebody may still come for it. Whoever waited for images was told that they failed."""
    if job.collected or (job.completed_at is not None and job.completed_at < int(since)):
        return False
    return job.error is None or (job.request.kind == "video" and job.error.code != CANCELLED.code)
