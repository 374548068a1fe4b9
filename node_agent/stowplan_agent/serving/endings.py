"""How jobs end: what they made is encoded, kept or handed over, and counted; or they fail, and that is counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from stowplan_agent.serving.contents import Content, encoded, suffix
from stowplan_agent.serving.encoder import Encoder
from stowplan_agent.serving.jobs import CANCELLED, ErrorCode, Job, JobError
from stowplan_agent.serving.metrics import AgentMetrics, RequestStatus
from stowplan_agent.serving.requests import Cancelled, Failed, GenerationResult
from stowplan_agent.serving.shelf import Shelf

_COUNTED: Final[dict[ErrorCode, RequestStatus]] = {
    "failed": "failed",
    "out_of_memory": "out_of_memory",
    "cancelled": "cancelled",
    # Both ended before their time at somebody's wish, and are counted so.
    "deadline_exceeded": "cancelled",
    "stopping": "cancelled",
}
_log = logging.getLogger(__name__)


class Endings:
    """Ends the jobs of one queue, each once."""

    def __init__(
        self, shelf: Shelf, metrics: AgentMetrics, clock: Callable[[], float], ended: Callable[[Job], None]
    ) -> None:
        """``ended`` hears of every job that ended, from whatever thread ended it."""
        self.last_seconds = 1.0
        """Of the last request that was finished, on the device."""
        self._shelf = shelf
        self._metrics = metrics
        self._clock = clock
        self._ended = ended
        self._encoder = Encoder()

    def finish(self, job: Job, result: GenerationResult) -> None:
        """Hand a good result to whoever waits, by way of the encoder. Waits for the encoder to be free, not for it."""
        self.last_seconds = result.seconds
        self._encoder.submit(lambda: self._encode(job, result))

    def fail(self, job: Job, error: JobError) -> None:
        """End a job badly; no effect on one that has ended."""
        if job.fail(int(self._clock()), error, first=lambda: self._metrics.count_request(_COUNTED[error.code])):
            self._ended(job)

    def stop(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for what is encoded now; whether that has ended."""
        return self._encoder.stop(timeout)

    def _encode(self, job: Job, result: GenerationResult) -> None:
        kind = job.request.kind
        try:
            if job.cancelled is not None:
                raise Cancelled
            parts = encoded(kind, result)
            content = self._kept(job, parts) if job.kept else Content(tuple(parts))
        except Cancelled:
            self.fail(job, job.cancelled or CANCELLED)
        except Failed as error:
            self.fail(job, JobError("failed", str(error)))
        except Exception as error:
            _log.exception("encoding %s failed", job.id)
            self.fail(job, JobError("failed", f"the {kind} could not be encoded: {error}"))
        else:
            self._complete(job, result.seconds, content, parts if job.kept and job.handed else ())

    def _kept(self, job: Job, parts: Sequence[bytes]) -> Content:
        """What the shelf keeps of it: nothing, where it has no room and somebody is given the parts themselves."""
        try:
            return Content(self._shelf.store(job, parts, suffix(job.request.kind)))
        except Failed as error:
            if not job.handed:
                raise
            _log.warning("what %s made is given to its client and not kept: %s", job.id, error)
            return Content(())

    def _complete(self, job: Job, seconds: float, content: Content, in_hand: Sequence[bytes]) -> None:
        def counted() -> None:
            request = job.request
            self._metrics.count_request("completed")
            self._metrics.observe_request(seconds, (request.width, request.height, request.frames))

        if job.complete(int(self._clock()), content, in_hand, first=counted):
            self._ended(job)
        else:
            self._shelf.erase(job)
            self.fail(job, job.cancelled or CANCELLED)
