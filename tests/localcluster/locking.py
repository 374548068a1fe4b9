"""One build and one start or stop at a time, also across processes.

The kernel drops the lock when its holder dies, so a killed run never blocks the next.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster.progress import say


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path``; says ``what`` it waits for when another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that {what}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
