"""The staging ring: bytes from pageable memory or from files reach the device through a little pinned memory.

The driver copies pageable memory with one thread and blocks the host meanwhile (6 to 10 GB/s on a link of 55). Here
several threads fill pinned pieces, and each piece goes out on the copy stream as soon as it is full. Promises:

- Copies end in the order in which they were queued, and never overtake one into the same buffer; pieces in any order.
- The host waits for nothing but `StagedCopy.end`, `settle`, and the reads under way in `cancel` and `close`.
- A copy that fails harms no other one, and leaves every piece usable.

No deadlock: a piece is awaited on the host only for copies that are on the stream, which wait only for events recorded
before they were queued; the oldest copy's remaining bytes are always the first to get a piece.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import torch

from stowplan_agent.accelerators.copy_stream import CopyStream
from stowplan_agent.accelerators.reading_threads import reading_threads
from stowplan_agent.accelerators.staged_copy import StagedCopy
from stowplan_agent.accelerators.staging_memory import PIECE_BYTES, RING_BYTES, Piece, StagingMemory
from stowplan_agent.accelerators.staging_order import StagingOrder

SPARE: Final = 8
"""One CPU in this many is left to whoever queues and to the driver: with all 16 of one H200 host reading, 5 to 20 %
less arrives than with 14."""


class Staging:
    """See the module. One thread queues; ``threads`` of its own read. Nothing is taken before `open`."""

    def __init__(
        self,
        stream: CopyStream,
        *,
        pin: Callable[[torch.Tensor], bool],
        unpin: Callable[[torch.Tensor], None],
        piece_bytes: int = PIECE_BYTES,
        ring_bytes: int = RING_BYTES,
        threads: int | None = None,
    ) -> None:
        """``pin`` locks memory or returns False. ``threads``: by default those that read, less one in `SPARE`."""
        self._stream = stream
        self._pin, self._unpin = pin, unpin
        self._piece_bytes, self._ring_bytes = piece_bytes, ring_bytes
        self._count = threads or reading_threads() - reading_threads() // SPARE
        # Re-entrant: the collector may run a buffer's finalizer, which calls `paused`, in a thread that holds it.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._read = threading.Condition(self._lock)
        self._order = StagingOrder(stream)
        self._opening = threading.RLock()
        self._opener: threading.Thread | None = None
        self.closed = False
        self._threads: list[threading.Thread] = []

    @property
    def locked_bytes(self) -> int:
        """Host memory that is locked for the ring."""
        return 0 if self._order.memory is None else self._order.memory.locked_bytes

    @property
    def busy(self) -> bool:
        """Whether a copy is not wholly on the stream: what comes now must be queued behind it. Takes no lock."""
        return bool(self._order.queued)

    def open(self) -> bool:
        """Take the memory and start the threads, once; returns whether the driver has locked the memory."""
        with self._opening:
            if self._order.memory is None and not self.closed:
                self._start_threads()  # first: without one, whoever waits for a copy would wait for ever
                self._order.memory = StagingMemory(
                    self._pin, self._stream.fence, ring_bytes=self._ring_bytes, piece_bytes=self._piece_bytes
                )
        return self.locked_bytes > 0

    def prepare(self) -> None:
        """Begin to `open` on a thread; whoever calls that then waits for the rest. What fails, fails there again."""
        if self._opener is None and not self.closed:
            opener = threading.Thread(target=self._open_quietly, name="staging-opener", daemon=True)
            with suppress(RuntimeError):  # no thread more: `open` does it all
                opener.start()
                self._opener = opener

    def queue(self, copy: StagedCopy) -> StagedCopy:
        """Queue a copy; the ring must be open, unless it goes straight. Raises RuntimeError once the ring is closed."""
        with self._stream.current(), self._lock:
            if self.closed:
                raise RuntimeError("the staging ring is closed: nothing can be copied any more")
            self._order.add(copy)
            self._work.notify(-(-copy.nbytes // self._piece_bytes))
        return copy

    def cancel(self, storage: int) -> None:
        """Let go of queued copies into the memory at this address: none of them is sent, or read for, afterwards."""
        if not self.busy:
            return
        with self._stream.current(), self._lock:
            for copy in (stopped := [copy for copy in self._order.queued if copy.storage == storage]):
                copy.cancel()
            while any(copy.reading for copy in stopped):
                self._read.wait()
            for copy in stopped:
                self._order.send(copy, begin=False)
            self._order.advance()
            self._stir()

    def settle(self) -> None:
        """Wait until every queued copy is on the stream."""
        with self._lock:
            last = self._order.queued[-1] if self._order.queued else None
        if last is not None:
            last.end()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it, nothing is put on the stream."""
        with self._lock:
            yield

    def close(self) -> None:
        """Fail what is still queued, end the threads, unlock and drop the memory. Closing again does nothing."""
        with self._stream.current(), self._lock:
            if self.closed:
                return
            self.closed = True
            for copy in self._order.queued:
                copy.fail(RuntimeError("the staging ring was closed before all bytes were copied"))
            self._work.notify_all()
            self._order.advance()
        if threading.current_thread() in (*self._threads, self._opener):
            return  # the collector closes an abandoned ring from inside: the memory goes with the process
        if self._opener is not None:
            self._opener.join()  # first: it may be starting the others
        for thread in self._threads:
            thread.join()
        if self._order.memory is not None:
            self._stream.synchronize()
            self._order.memory.release(self._unpin)

    def _open_quietly(self) -> None:
        with suppress(Exception), self._stream.current():
            self.open()

    def _start_threads(self) -> None:
        """As many as there may be; raises RuntimeError where not even one may."""
        while len(self._threads) < self._count:
            thread = threading.Thread(target=self._serve, name=f"staging-{len(self._threads)}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the limit of processes of a pod, say
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _serve(self) -> None:
        # Inference mode, for the ring's memory may have been taken in it.
        with torch.inference_mode(), self._stream.current():
            while (taken := self._take()) is not None:
                self._stage(*taken)
                del taken  # an idle thread keeps no copy alive

    def _take(self) -> tuple[StagedCopy, Piece, int, int] | None:
        with self._lock:
            while not self.closed:
                if (taken := self._order.take(self._piece_bytes)) is not None:
                    return taken
                self._work.wait()
            return None

    def _stage(self, copy: StagedCopy, piece: Piece, start: int, nbytes: int) -> None:
        failure: BaseException | None = None
        try:
            piece.free.synchronize()
            assert copy.source is not None
            copy.source.read(start, piece.memory[:nbytes])
        except BaseException as error:
            # Without this frame, which would keep the copy alive for as long as its error.
            failure = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        with self._lock:
            if not self._order.filled(copy, piece, start, nbytes, failure):
                self._stir()
                return
        try:
            self._order.put(copy, piece, start, nbytes)
        except Exception as error:
            failure = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        with self._lock:
            self._order.done(copy, piece, failure)
            self._stir()

    def _stir(self) -> None:
        self._work.notify(self._order.takeable())
        self._read.notify_all()
