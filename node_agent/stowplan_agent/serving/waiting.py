"""Waiting for a job on the event loop: until it ends, or step by step, or until the client is gone.

The worker's thread wakes the loop; nobody asks in a circle but for whether the client is still there, which a server
learns only by looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from stowplan_agent.serving.jobs import Job

BEAT: Final = 15.0
"""Seconds of silence after which whoever follows a job hears that nothing has changed."""
HANG_UP_POLL: Final = 0.2
"""Seconds between looks at whether the client is still there."""

Gone = Callable[[], Awaitable[bool]]
"""Whether the client has hung up."""


async def changes(job: Job, gone: Gone) -> AsyncIterator[bool]:
    """True now and after each change of the job, the last time when it has ended; ends early for a client gone.

    Changes that come faster than they are taken are told once. False after `BEAT` seconds without one.
    """
    clock = asyncio.get_running_loop().time
    with _changed(job) as changed:
        told = clock()
        yield True
        while not job.done:
            try:
                await asyncio.wait_for(changed.wait(), HANG_UP_POLL)
            except TimeoutError:
                if await gone():
                    return
                if clock() - told < BEAT:
                    continue
            told = clock()
            news = changed.is_set()
            changed.clear()  # before it is told: what comes while that is sent is told next
            yield news


async def until_done(job: Job, gone: Gone) -> None:
    """Return when the job has ended, or the client is gone."""
    with _changed(job, steps=False) as changed:
        while not job.done:
            try:
                await asyncio.wait_for(changed.wait(), HANG_UP_POLL)
            except TimeoutError:
                if await gone():
                    return


@contextmanager
def _changed(job: Job, *, steps: bool = True) -> Iterator[asyncio.Event]:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def tell() -> None:
        if steps or job.done:
            with suppress(RuntimeError):  # the loop is closed when a job outlives the server; then nobody waits
                loop.call_soon_threadsafe(changed.set)

    unwatch = job.watch(tell)
    try:
        yield changed
    finally:
        unwatch()
