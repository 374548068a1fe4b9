"""Which bytes a thread reads next, and which go on the stream: the staging ring's decisions, without its threads.

First in, first out: a copy is begun once the one before it is wholly on the stream, so two copies into one buffer, or a
staged and a straight one, never overtake each other. Within a copy any piece goes as soon as it is full: a slow read
holds up nothing but its own piece. Nor does the last read of a copy hold up the one behind it, if that one goes into
another buffer and what it must wait for has happened: it is begun ahead of its turn, and ends in turn. The caller holds
the ring's lock, but for `put`.
"""

from __future__ import annotations

from collections import deque

from stowplan_agent.accelerators.copy_stream import CopyStream
from stowplan_agent.accelerators.staged_copy import StagedCopy
from stowplan_agent.accelerators.staging_memory import Piece, StagingMemory


class StagingOrder:
    """Copies that are not wholly on the stream, the oldest first."""

    def __init__(self, stream: CopyStream) -> None:
        """Nothing is queued. ``memory`` is given before the first copy that needs pieces."""
        self.queued: deque[StagedCopy] = deque()
        self.memory: StagingMemory | None = None
        self._stream = stream
        self._unread: deque[StagedCopy] = deque()

    def add(self, copy: StagedCopy) -> None:
        """Queue a copy behind all others."""
        self.queued.append(copy)
        if copy.next < copy.nbytes:
            self._unread.append(copy)
        self.advance()

    def takeable(self) -> int:
        """Pieces that threads could `take` now, if there are bytes for all of them."""
        return len(self.memory.unused) if self.memory is not None and self._unread else 0

    def take(self, piece_bytes: int) -> tuple[StagedCopy, Piece, int, int] | None:
        """An unused piece, and what is to be read into it: start and length. None if either is missing."""
        while self._unread and self._unread[0].next >= self._unread[0].nbytes:
            self._unread.popleft()
        if not self._unread or self.memory is None or not self.memory.unused:
            return None
        copy, piece = self._unread[0], self.memory.unused.popleft()
        start, nbytes = copy.next, min(piece_bytes, copy.nbytes - copy.next)
        copy.next += nbytes
        copy.reading += 1
        return copy, piece, start, nbytes

    def filled(self, copy: StagedCopy, piece: Piece, start: int, nbytes: int, error: BaseException | None) -> bool:
        """What `take` gave was read, or has failed. True if it goes on the stream now: by `put`, then `done`."""
        if error is not None:
            copy.fail(error)
        if not copy.begun and self._may_go_ahead(copy):
            self.send(copy, begin=True)
        if copy.begun and not copy.over:
            return True
        copy.filled.append((piece, start, nbytes))
        copy.reading -= 1
        self.send(copy, begin=False)
        self.advance()
        return False

    def put(self, copy: StagedCopy, piece: Piece, start: int, nbytes: int) -> None:
        """Put a piece on the stream. Without the lock: the driver, and Python's lock after it, would hold up all."""
        part = copy.destination[start : start + nbytes]
        self._stream.send(part, piece.memory[:nbytes], blocking=not self._pinned)
        self._stream.set_fence(piece.free)

    def done(self, copy: StagedCopy, piece: Piece, error: BaseException | None) -> None:
        """A piece has been put on the stream, or has failed to be."""
        if error is not None:
            copy.fail(error)
        copy.reading -= 1
        self._give_back(piece)
        self.send(copy, begin=False)
        self.advance()

    def advance(self) -> None:
        """Put on the stream all whose turn has come."""
        while self.queued:
            copy = self.queued[0]
            self.send(copy, begin=True)
            if copy.next < copy.nbytes or copy.reading:
                return
            try:
                end = self._stream.record()
            except Exception as error:
                copy.fail(error)
                end = None
            self.queued.popleft()
            copy.finish(end)

    def send(self, copy: StagedCopy, *, begin: bool) -> None:
        """Put what is ready of a begun copy on the stream. One that is over sends nothing and gives its pieces back."""
        try:
            if begin and not copy.begun and not copy.over:
                copy.begun = True
                if copy.after is not None:
                    self._stream.wait(copy.after)
                if copy.straight is not None:
                    self._stream.send(copy.destination, copy.straight, blocking=copy.blocking)
            while copy.filled and copy.begun and not copy.over:
                self.put(copy, *copy.filled[-1])
                self._give_back(copy.filled.pop()[0])
        except Exception as error:
            copy.fail(error)
        while copy.filled and copy.over:
            self._give_back(copy.filled.pop()[0])

    def _may_go_ahead(self, copy: StagedCopy) -> bool:
        if copy.over or copy.in_turn or len(self.queued) < 2 or copy is not self.queued[1]:
            return False
        if copy.storage == self.queued[0].storage:
            return False
        try:
            return copy.after is None or self._stream.has_passed(copy.after)
        except Exception:  # it is the copy's own, once its turn has come
            return False

    @property
    def _pinned(self) -> bool:
        return self.memory is not None and self.memory.pinned

    def _give_back(self, piece: Piece) -> None:
        assert self.memory is not None
        self.memory.unused.append(piece)
