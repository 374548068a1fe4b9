"""The emulated copy stream: a thread that does what it is given in order, so that order and overlap bugs show.

A failure belongs to the event of the work that failed; the thread goes on. It ends with `close`, or with the
interpreter, and keeps neither a process nor a buffer alive.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class EmulatedEvent:
    """A moment of the virtual clock; a copy's event has also really happened once ``done`` is set."""

    moment: float
    done: threading.Event | None = None
    errors: list[BaseException] = field(default_factory=list)
    """What the copy raised on its thread, if it failed."""


_Job = tuple[Callable[[], object], EmulatedEvent]
_Jobs = queue.SimpleQueue[_Job | None]


class CopyThread:
    """Work in order of issue, on a thread of its own."""

    def __init__(self) -> None:
        """Starts the thread."""
        self._jobs: _Jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._jobs,), name="emulated-copy-stream", daemon=True)
        # A thread inside torch while the interpreter is taken down aborts the process, so it ends before that.
        self.close = weakref.finalize(self, _end, self._jobs, self._thread)
        """Ends the thread after what is queued; closing again does nothing."""
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether work that is queued now will be done."""
        return self._thread.is_alive()

    def queue(self, work: Callable[[], object], moment: float = 0.0) -> EmulatedEvent:
        """Queue work whose end is ``moment`` on the virtual clock."""
        event = EmulatedEvent(moment, threading.Event())
        self._jobs.put((work, event))
        return event

    def drain(self) -> None:
        """Wait until nothing is left to do; a closed thread has nothing."""
        if self.is_open:
            done = self.queue(_nothing).done
            assert done is not None
            done.wait()


def _nothing() -> None:
    pass


def _work(jobs: _Jobs) -> None:
    # Inference mode, so that host tensors which were made in it can be written.
    with torch.inference_mode():
        while (job := jobs.get()) is not None:
            work, event = job
            try:
                work()
            except BaseException as error:
                event.errors.append(error)
            del job, work  # an idle link keeps no buffer alive
            assert event.done is not None
            event.done.set()


def _end(jobs: _Jobs, thread: threading.Thread) -> None:
    jobs.put(None)
    if thread is not threading.current_thread():  # the last reference may have gone with the last work
        thread.join()
