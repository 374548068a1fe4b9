"""The signal of the kill switch, which must never end a process: at any moment it is heard, or held back until it is.

What no handler hears ends a process. A start imports libraries for seconds before it has one, and Python takes its
handlers away before it is gone. So the signal is blocked from the first line on (for a rank: from before it is started,
since the mask is inherited), comes with the handler, and is ignored from the interpreter's end on.
"""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

SWITCH: Final = signal.SIGUSR1


def hold_back() -> None:
    """From here on the signal waits for `hear`, as it does in every thread that is started before that."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {SWITCH})


@contextmanager
def held_back_in_children() -> Iterator[None]:
    """Processes that are started within it begin with the signal held back; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {SWITCH})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear(handler: Callable[[int, Any], object]) -> None:
    """The handler hears the signal from here on, and first of all one that was held back. In the main thread only."""
    signal.signal(SWITCH, handler)
    # Python puts handlers of its own back to the default at its end, and leaves what is ignored.
    atexit.register(signal.signal, SWITCH, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SWITCH})
