"""One attempt at one job on the worker thread, whose failure is a value and never outlives it.

An exception kept anywhere keeps its traceback, the traceback keeps the frames, and the frames keep the device tensors
of a request that is over. So nothing leaves here but a code and a sentence, and memory is given back before the client
hears of the failure: a client that tries again at once finds it free.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

from stowplan_agent.serving.endings import Endings
from stowplan_agent.serving.jobs import CANCELLED, Job, JobError
from stowplan_agent.serving.requests import Cancelled, Failed, GenerationRequest, GenerationResult

Run = Callable[[GenerationRequest, Callable[[], bool]], GenerationResult]
"""Runs one request on the worker thread. Polls its second argument once after each step, and raises `Cancelled` (or
returns early: the result is dropped) when it is true."""
Admit = Callable[[GenerationRequest], None]
"""Raises `Refused` for a request that cannot fit. Called from any thread, so it must only read."""
Recover = Callable[[], None]
"""Called on the worker thread after a request failed, when nothing of it is referenced any more."""

_log = logging.getLogger(__name__)


def serve_one(run: Run, recover: Recover, job: Job, endings: Endings) -> None:
    """Run one job and end it, or hand on what it made. Nothing is raised: the next job is served whatever happens."""
    try:
        job.begin()
        error = run_one(run, job, endings.finish)
        if error is not None:
            give_back(recover)
            endings.fail(job, error)
    except Exception as error:
        _log.exception("%s could not be ended as it should", job.id)
        endings.fail(job, JobError("failed", f"the server failed with {type(error).__name__}; its log has the details"))


def run_one(run: Run, job: Job, finish: Callable[[Job, GenerationResult], None]) -> JobError | None:
    """Run one job and hand its result to ``finish``; or say, in one sentence, why there is none."""
    try:
        if job.cancelled is not None:
            return job.cancelled
        result = run(job.request, job.poll)
        if job.cancelled is not None:
            return job.cancelled
        finish(job, result)
    except Cancelled:
        return job.cancelled or CANCELLED
    except Failed as error:
        return JobError("failed", str(error))
    except BaseException as error:
        if is_out_of_memory(error):
            # The text and not the error: some log handlers keep what they are given.
            _log.error("%s ran out of memory: %s", job.id, str(error))
            return JobError("out_of_memory", f"this request ran out of memory, and only this one ended: {error}")
        _log.exception("%s failed", job.id)
        return JobError("failed", f"the pipeline failed with {type(error).__name__}: {error}")
    return None


def give_back(recover: Recover) -> None:
    """Return the memory of a failed request. An error here is logged: the next request is tried all the same."""
    # Tracebacks often form cycles with their frames, which only the collector frees.
    gc.collect()
    try:
        recover()
    except Exception:
        _log.exception("giving memory back after a failed request failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is torch's OutOfMemoryError (found by name: this room does not import torch) or Python's own."""
    return isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
