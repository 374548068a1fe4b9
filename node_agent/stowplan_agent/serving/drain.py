"""Stopping and losing nothing in silence: what was begun is finished if the grace period allows it, or fails aloud.

On SIGTERM the door shuts, so that the pod leaves its Service, and new requests hear 503 with a Retry-After. Those that
wait and run go on; videos that end meanwhile wait to be fetched. What is not done when the time is over fails with the
code ``stopping``, which tells its client to send it again. Then the server ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from stowplan_agent.serving.door import Door
from stowplan_agent.serving.queue import RequestQueue

COLLECTED_WITHIN: Final = 10.0
"""Seconds: a video that ended longer ago, and that nobody has fetched, is not waited for."""
STEP_SECONDS: Final = 2.0
"""For the step that runs when the time is over."""
LAST_WORD: Final = 2.0
"""Seconds in which those who look at a job that was given up can still learn of it."""
ANSWERS: Final = 2.0
"""Seconds in which answers go out when the server ends."""
AFTERWARDS: Final = STEP_SECONDS + LAST_WORD + ANSWERS + 2.0
"""Seconds of the grace period that are not for finishing: the above, the last status, the end of the process."""
LOOK: Final = 0.1
"""Seconds between looks at whether to hurry."""
_log = logging.getLogger(__name__)


def drain(
    door: Door,
    queue: RequestQueue,
    grace: float,
    *,
    hurry: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> bool:
    """Let what was begun end, in ``grace`` seconds less `AFTERWARDS`; whether all of it did and was fetched.

    Then the queue is stopped: every job has ended. ``hurry``: somebody asked a second time, and waits no longer.
    """
    door.close("the server stops: it ends what it has begun and takes nothing more")
    queue.shut()
    until, since = clock() + grace - AFTERWARDS, wall() - COLLECTED_WITHIN
    settled = False
    while not settled and not hurry() and (left := until - clock()) > 0:
        settled = queue.wait_until_idle(min(LOOK, left)) and queue.shelf.wait_until_collected(since, min(LOOK, left))
    if not settled:
        _log.warning("the grace period of %g s is over: what has not ended fails now", grace)
    queue.stop(STEP_SECONDS)
    return queue.shelf.wait_until_collected(since, 0 if hurry() else LAST_WORD) and settled
