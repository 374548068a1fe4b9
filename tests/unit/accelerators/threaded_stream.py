"""A copy stream for the staging ring that is no GPU's: a thread that copies between host tensors in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

DEADLINE = 60


class Stream:
    """A copy stream on a thread. ``valve`` holds it; ``refusing`` makes the numbered call to `send` fail."""

    def __init__(self) -> None:
        self.valve = threading.Event()
        self.valve.set()
        self.sent: list[tuple[int, int]] = []  # what was sent, as the address and the bytes of the destination
        self.blocking: set[bool] = set()
        self.refusing: set[int] = set()
        self.mute = False
        self._counting = threading.Lock()
        self.locked: list[int] = []
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            assert self.valve.wait(DEADLINE)
            job()

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def wait(self, event: threading.Event) -> None:
        def arrive() -> None:
            assert event.wait(DEADLINE)

        self._jobs.put(arrive)

    def has_passed(self, event: threading.Event) -> bool:
        return event.is_set()

    def send(self, destination: torch.Tensor, source: torch.Tensor, *, blocking: bool) -> None:
        with self._counting:
            self.sent.append((destination.data_ptr(), destination.nbytes))
            number = len(self.sent)
        self.blocking.add(blocking)
        if number in self.refusing:
            raise RuntimeError(f"send {number} is refused")
        self._jobs.put(partial(destination.copy_, source.clone() if blocking else source))

    def record(self) -> threading.Event:
        if self.mute:
            raise RuntimeError("the device is gone")
        event = threading.Event()
        self._jobs.put(event.set)
        return event

    def fence(self) -> Fence:
        return Fence()

    def set_fence(self, fence: Fence) -> None:
        fence.event = threading.Event()
        self._jobs.put(fence.event.set)

    def synchronize(self) -> None:
        assert self.record().wait(DEADLINE)

    def pin(self, memory: torch.Tensor) -> bool:
        self.locked.append(memory.nbytes)
        return True

    def unpin(self, memory: torch.Tensor) -> None:
        self.locked.remove(memory.nbytes)

    def end(self) -> None:
        self.valve.set()
        self._jobs.put(None)
        self._thread.join()


class Fence:
    event: threading.Event | None = None

    def synchronize(self) -> None:
        assert self.event is None or self.event.wait(DEADLINE)
