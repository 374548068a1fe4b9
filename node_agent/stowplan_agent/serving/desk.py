"""What every route shares: who may enter, with which defaults, into which queue, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool

from stowplan_agent.serving.bodies import Defaults, Seeds, ServingDefaults
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.errors import ApiError, not_ready, of_submit, stopping
from stowplan_agent.serving.fields import Body
from stowplan_agent.serving.idempotency import Keys
from stowplan_agent.serving.jobs import Job, JobError
from stowplan_agent.serving.queue import Closed, Full, RequestQueue
from stowplan_agent.serving.requests import GenerationRequest, Kind, Refused

REPLAYED: Final = {"Idempotent-Replayed": "true"}
"""Headers of an answer that an earlier request with the same key has made."""


@dataclass(frozen=True)
class Taken:
    """A request that was taken, or that had been before."""

    job: Job
    replayed: bool
    """Whether it is the job of an earlier request with the same key."""

    @property
    def headers(self) -> dict[str, str]:
        """Those that its answer has beside the usual."""
        return dict(REPLAYED) if self.replayed else {}


class Desk:
    """Takes requests for one queue."""

    def __init__(
        self, door: Door, queue: RequestQueue, defaults: Defaults, seeds: Seeds, longest: float | None = None
    ) -> None:
        """``longest``: seconds that any request may take, waiting included; None for as long as it takes."""
        self.seeds = seeds
        self.shelf = queue.shelf
        self._door = door
        self._queue = queue
        self._defaults = defaults
        self._longest = longest
        self._keys = Keys()

    def known(self) -> ServingDefaults | None:
        """The defaults, or None while the model is not known yet."""
        return self._defaults() if callable(self._defaults) else self._defaults

    async def enter(self, key: str | None) -> ServingDefaults:
        """The defaults, for a request that may enter. Raises ApiError (503) before Ready, and while stopping.

        A request whose ``key`` leads to a job that is there enters even then: nothing is begun for it.
        """
        defaults = self.known()
        if defaults is not None and key is not None and await run_in_threadpool(self._keys.holds, key):
            return defaults
        return self._open()

    async def take(
        self, request: GenerationRequest, body: Body, key: str | None, *, kept: bool = False, followed: bool = False
    ) -> Taken:
        """Queue a request, or find the job of an earlier one with the same ``key``.

        ``followed``: its client waits for the end, and must leave the job; it is given what was made, unless that is
        ``kept`` to be fetched. Raises ApiError: 503, 429, or 422 with numbers or for a key that came with another body.
        """

        def submit() -> Job:
            job = self._submit(request, kept=kept or key is not None, handed=followed and not kept)
            if followed:
                job.follow()
            return job

        if key is None:
            taken = Taken(await run_in_threadpool(submit), replayed=False)
        else:
            job, replayed = await run_in_threadpool(self._keys.claim, key, body, submit, followed=followed)
            taken = Taken(job, replayed)
        if not taken.replayed:
            self._bound(taken.job, body.deadline)
        return taken

    def _open(self) -> ServingDefaults:
        state, defaults = self._door.state, self.known()
        if self._queue.is_shut and state.phase != "Failed":  # one that failed stays, and its reason says more
            raise stopping()
        if not state.open or defaults is None:
            raise not_ready(state.phase, state.message)
        return defaults

    def _submit(self, request: GenerationRequest, *, kept: bool, handed: bool) -> Job:
        self._open()
        try:
            return self._queue.submit(request, kept=kept, handed=handed)
        except (Closed, Full, Refused) as error:
            if self._queue.is_shut:
                raise stopping() from None
            raise of_submit(error, self._door.phase) from None

    def _bound(self, job: Job, wanted: float | None) -> None:
        """End the job at its deadline, wherever it is then."""
        limits = [limit for limit in (wanted, self._longest) if limit is not None]
        if not limits:
            return
        message = f"the request was not finished within {min(limits):g} s, its deadline; allow more or ask for less"
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(limits), job.cancel, JobError("deadline_exceeded", message))

        def drop() -> None:
            with suppress(RuntimeError):  # the loop is closed when a job outlives the server, and its timers with it
                loop.call_soon_threadsafe(timer.cancel)

        job.when_done(drop)


def not_here(kind: Kind, job_id: str) -> ApiError:
    """404: there is no job of this id, or its file is gone."""
    why = "it never was, was deleted, made room for newer ones, or another replica has it"
    message = f"{kind} {job_id[:80]!r} is not here: {why}"
    return ApiError(404, message, code=f"{kind}_not_found", param=f"{kind}_id")


def must_be(job: Job | None, kind: Kind, job_id: str) -> Job:
    """The job of an id that a client gave. Raises ApiError (404) where there is none of this kind."""
    if job is None or job.request.kind != kind:
        raise not_here(kind, job_id)
    return job
