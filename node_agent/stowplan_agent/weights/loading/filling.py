"""Filling host buffers from their sources, on as many cores as there are: memory is faster than any one of them.

Buffers are cut into pieces, which threads take in order, so that buffers are finished one after another. What follows
on a finished buffer (the driver's registration, which is one thread's work) happens beside the reading of the next.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

import torch

from stowplan_agent.accelerators.interface import ByteSource
from stowplan_agent.accelerators.reading_threads import reading_threads

PIECE: Final = 16 << 20
"""Bytes that a thread reads at a time: long against the cost of handing it over, short against a layer."""

Job = tuple[ByteSource, torch.Tensor]
"""Bytes, and the flat uint8 host tensor of their size that they go to."""


def fill_all(jobs: Sequence[Job], filled: Callable[[int], None] = lambda _: None) -> None:
    """Fill every tensor; ``filled`` is called with a job's index once it is, one call at a time, on any thread.

    Raises what a source or ``filled`` raises first; nothing is written any more by then.
    """
    pieces = [(index, start) for index, (source, _) in enumerate(jobs) for start in range(0, source.nbytes, PIECE)]
    threads = min(reading_threads(), len(pieces))
    work = _Work(jobs, iter(pieces), filled)
    if threads < 2:
        work.run()
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="fill") as pool:
        running = [pool.submit(work.run) for _ in range(threads)]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            work.stopped = any(future.exception() is not None for future in done)
        except BaseException:  # whoever interrupts does not wait for the rest
            work.stopped = True
            raise
    for future in running:
        future.result()


class _Work:
    def __init__(self, jobs: Sequence[Job], pieces: Iterator[tuple[int, int]], filled: Callable[[int], None]) -> None:
        self.stopped = False
        self._jobs = jobs
        self._pieces = pieces
        self._filled = filled
        self._left = [-(-source.nbytes // PIECE) for source, _ in jobs]
        self._lock = threading.Lock()
        self._finished: deque[int] = deque()
        self._following = False  # whether a thread does what follows; the others go on reading

    def run(self) -> None:
        """Take pieces until none is left."""
        while not self.stopped and (piece := self._take()) is not None:
            index, start = piece
            source, target = self._jobs[index]
            source.read(start, target[start : start + PIECE])
            with self._lock:
                self._left[index] -= 1
                if self._left[index] == 0:
                    self._finished.append(index)
            self._follow()

    def _take(self) -> tuple[int, int] | None:
        with self._lock:
            return next(self._pieces, None)

    def _follow(self) -> None:
        while not self.stopped:
            with self._lock:
                if self._following or not self._finished:
                    return
                self._following = True
                index = self._finished.popleft()
            try:
                self._filled(index)
            finally:
                self._following = False
