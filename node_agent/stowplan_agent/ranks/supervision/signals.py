"""Signals as bytes on a socket, so that one wait can wait for them too: no handler runs code of ours."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def signals_on_socket(numbers: Sequence[int]) -> Iterator[socket.socket]:
    """Within it, each of these signals that arrives, or was held back, is a byte on the socket.

    For the main thread only.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before: dict[int, Any] = {number: signal.signal(number, _nothing) for number in numbers}
    wakeup = signal.set_wakeup_fd(theirs.fileno())
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    try:
        yield ours
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _nothing(_number: int, _frame: object) -> None:
    pass
