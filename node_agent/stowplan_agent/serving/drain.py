"""Stopping and losing nothing in silence: what was begun is finished if the grace period allows it, or fails aloud.

On SIGTERM the door shuts, so that the pod leaves its Service, and new requests hear 503 with a Retry-After. Those that
wait and run go on; what ends meanwhile and is kept waits to be fetched, and answers on their way go out. What is not
done when the time is over fails with the code ``stopping``, which tells its client to send it again. Then the server
ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from stowplan_agent.serving.door import Door
from stowplan_agent.serving.outgoing import Outgoing
from stowplan_agent.serving.queue import RequestQueue

COLLECTED_WITHIN: Final = 10.0
"""Seconds: a result that ended longer ago, and that nobody has fetched, is not waited for."""
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
    outgoing: Outgoing | None = None,
    hurry: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> bool:
    """Let what was begun end, in ``grace`` seconds less `AFTERWARDS`; whether all of it did, was fetched and was sent.

    Then the queue is stopped: every job has ended. ``hurry``: somebody asked a second time, and waits no longer.
    """
    door.close("the server stops: it ends what it has begun and takes nothing more")
    queue.shut()
    until, since = clock() + grace - AFTERWARDS, wall() - COLLECTED_WITHIN
    settled = False
    while not settled and not hurry() and (left := until - clock()) > 0:
        look = min(LOOK, left)
        settled = queue.wait_until_idle(look) and queue.shelf.wait_until_collected(since, look)
        settled = settled and (outgoing is None or outgoing.wait_until_sent(look))
    if not settled:
        _log.warning("the grace period of %g s is over: what has not ended fails now", grace)
    return _ended(queue, since, hurry) and settled


def give_up(
    door: Door,
    queue: RequestQueue,
    *,
    hurry: Callable[[], bool] = lambda: False,
    wall: Callable[[], float] = time.time,
) -> bool:
    """Nothing may be served any more: end what was begun now; whether whoever looks at it has learned of it."""
    door.close("the server stops, and nothing is placed so that it could serve")
    return _ended(queue, wall() - COLLECTED_WITHIN, hurry)


def _ended(queue: RequestQueue, since: float, hurry: Callable[[], bool]) -> bool:
    queue.stop(STEP_SECONDS)
    return queue.shelf.wait_until_collected(since, 0 if hurry() else LAST_WORD)
