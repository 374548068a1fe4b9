"""A thread beside the pipeline's that turns frames into files, so that the device does not wait for an encoder.

One task runs and none waits: whoever brings the next one is held until the last is done, so that no more than two
results are in memory at once. The thread is a daemon: a process that is to end does not wait for an encoder.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger(__name__)


class Encoder:
    """Runs tasks one after another on its own thread."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._free = threading.Semaphore(1)
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, task: Callable[[], None]) -> None:
        """Run the task, once the one before has ended. A task must not raise; one that does is logged.

        After `stop` it is dropped: nobody waits for it any more.
        """
        self._free.acquire()
        if self._stopped:
            self._free.release()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="stowplan-encode", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def stop(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the task that runs, and end the thread; whether it has ended."""
        self._stopped = True
        if not self._free.acquire(timeout=timeout):
            return False
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join()
        self._free.release()
        return True

    def _work(self) -> None:
        while self._one():
            pass

    def _one(self) -> bool:
        """Run one task; its locals die with it, and with them the frames."""
        task = self._tasks.get()
        if task is None:
            return False
        try:
            task()
        except Exception:
            _log.exception("a task of the encoder failed")
        finally:
            del task
            self._free.release()
        return True
