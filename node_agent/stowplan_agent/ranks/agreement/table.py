"""The chair's end of the sockets: reads answers, sends orders, keeps the deadline. Never blocks.

It stands in the supervisor, which outlives any rank, and knows nothing of what a placement is.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from stowplan_agent.ranks.agreement.chair import Chair, ChairPhase, Sent
from stowplan_agent.ranks.agreement.deadlines import Deadlines
from stowplan_agent.ranks.agreement.messages import Answer, Frames, MessageError, Step, encode

CHUNK = 256 << 10


class Table:
    """One connected stream socket a rank. ``now`` is a moment of whatever clock the caller uses, in seconds."""

    def __init__(self, sockets: Sequence[socket.socket], deadlines: Deadlines) -> None:
        """Sets the sockets to not blocking."""
        self.chair = Chair(len(sockets))
        self.deadline: float | None = None
        self._sockets = list(sockets)
        self._deadlines = deadlines
        self._frames = [Frames() for _ in sockets]
        self._unsent = [bytearray() for _ in sockets]
        self._awaited: tuple[int, Step] | None = None
        for one in sockets:
            one.setblocking(False)

    @property
    def ended(self) -> str | None:
        """Why all ranks must be ended; None as long as they need not."""
        return self.chair.cause if self.chair.phase is ChairPhase.ENDED else None

    def has_unsent(self, rank: int) -> bool:
        """Whether orders wait until the rank's socket takes them: `send` when it does."""
        return bool(self._unsent[rank])

    def read(self, rank: int, now: float) -> bool:
        """Take in what a rank has sent; False once its socket is closed, as it is when the rank is over."""
        while True:
            try:
                received = self._sockets[rank].recv(CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not received:
                return False
            try:
                for message in self._frames[rank].feed(received):
                    if isinstance(message, Answer):
                        self._go(self.chair.hear(rank, message), now)
            except MessageError as error:
                self._go(self.chair.lost(rank, str(error)), now)
                return False

    def look(self, now: float) -> None:
        """Time has passed."""
        if self.deadline is not None and now >= self.deadline and self._awaited is not None:
            self._go(self.chair.late(*self._awaited), now)

    def send(self, rank: int) -> None:
        """Send as much as the rank's socket takes."""
        unsent = self._unsent[rank]
        try:
            while unsent:
                del unsent[: self._sockets[rank].send(unsent)]
        except BlockingIOError:
            return
        except OSError:
            unsent.clear()  # the rank is gone, and its end says so

    def _go(self, step: tuple[Chair, Sent], now: float) -> None:
        self.chair, sent = step
        awaited = None if self.chair.waits is None else (self.chair.round, self.chair.waits)
        if awaited != self._awaited:
            self._awaited = awaited
            self.deadline = None if awaited is None else now + self._deadlines.of(awaited[1])
        for rank, order in sent:
            self._unsent[rank] += encode(order)
            self.send(rank)
