"""The process above the ranks: starts one a GPU, passes on signals and output, and ends all when one is lost.

It has no device and no weights, so it lives when a rank does not: it can say how that ended. One thread waits for
everything at once (ends of processes, output, signals, deadlines); what to do about it is decided by `Fleet`.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.supervision.endings import Ending
from stowplan_agent.ranks.supervision.fleet import Action, Fleet, Grace, Send
from stowplan_agent.ranks.supervision.memory import out_of_memory_kills
from stowplan_agent.ranks.supervision.output import Prefixer
from stowplan_agent.ranks.supervision.processes import RankProcess, start_ranks

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
CHUNK: Final = 64 << 10
DEFAULT_GRACE: Final = Grace()


class Supervisor:
    """The ranks of one replica on one node. `run` must be called from the main thread: signals come there."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        variables: Mapping[str, str] = os.environ,
        grace: Grace = DEFAULT_GRACE,
        clock: Callable[[], float] = time.monotonic,
        output: tuple[BinaryIO, BinaryIO] | None = None,
        root: Path = Path("/"),
    ) -> None:
        """``commands``: one a rank. ``output``: where lines of the ranks go, instead of this process's own output."""
        self.board = Board.make(len(commands))
        self.fleet = Fleet(frozenset(range(len(commands))), grace)
        self._commands = commands
        self._variables = variables
        self._clock = clock
        self._output = output or (sys.stdout.buffer, sys.stderr.buffer)
        self._root = root
        self._selector = selectors.DefaultSelector()
        self._ranks: list[RankProcess] = []
        self._kills = 0

    def run(self) -> int:
        """Start the ranks and stay until none runs; the exit code for the whole. Says why on the error output."""
        self._kills = out_of_memory_kills(self._root)
        with _signals() as signals:
            self._selector.register(signals, selectors.EVENT_READ, partial(self._hear, signals))
            self._ranks = start_ranks(self._commands, self._variables, self.board)
            try:
                for rank in self._ranks:
                    self._watch(rank)
                while not self.fleet.over:
                    self._wait()
            finally:
                self._end()
        if self.fleet.cause is not None:
            self._write(1, f"{self.fleet.cause}\n".encode())
        return self.fleet.code

    def _watch(self, rank: RankProcess) -> None:
        self._selector.register(rank.pidfd, selectors.EVENT_READ, partial(self._ended, rank))
        for number, descriptor in enumerate(rank.output):
            os.set_blocking(descriptor, False)
            self._selector.register(
                descriptor, selectors.EVENT_READ, partial(self._pass_on, descriptor, number, Prefixer(rank.rank))
            )

    def _wait(self) -> None:
        deadline = self.fleet.deadline if not self.fleet.killed else None
        for key, _ in self._selector.select(None if deadline is None else max(0.0, deadline - self._clock())):
            key.data()
        self._do(self.fleet.look(self._clock()))

    def _do(self, step: tuple[Fleet, tuple[Action, ...]]) -> None:
        self.fleet, actions = step
        for action in actions:
            if isinstance(action, Send):
                self._ranks[action.rank].send(action.signal)
            else:
                self.board.release()

    def _ended(self, rank: RankProcess) -> None:
        self._selector.unregister(rank.pidfd)
        code = rank.reap()
        kills = out_of_memory_kills(self._root)
        ending = Ending(rank.rank, code, self.board.doing(rank.rank), kills > self._kills)
        self._do(self.fleet.ended(ending, self._clock()))

    def _hear(self, signals: socket.socket) -> None:
        for number in signals.recv(CHUNK):
            if number in SIGNALS:
                self._do(self.fleet.hear(number, self._clock()))

    def _pass_on(self, descriptor: int, number: int, prefixer: Prefixer) -> None:
        with suppress(BlockingIOError):
            text = os.read(descriptor, CHUNK)
            self._write(number, prefixer.feed(text) if text else prefixer.end())
            if not text:
                self._selector.unregister(descriptor)

    def _write(self, number: int, text: bytes) -> None:
        if text:
            self._output[number].write(text)
            self._output[number].flush()

    def _end(self) -> None:
        """No orphan, no zombie: also where the supervisor itself fails."""
        for rank in self._ranks:
            if rank.rank in self.fleet.running:
                rank.send(signal.SIGKILL)
                rank.reap()
        # What the ranks said last; what they had started has been killed and cannot keep the pipes open.
        while (ready := self._selector.select(0)) and any(callable(key.data) for key, _ in ready):
            for key, _ in ready:
                if key.fd not in {rank.pidfd for rank in self._ranks}:
                    key.data()
                else:
                    self._selector.unregister(key.fileobj)
        self._selector.close()
        for rank in self._ranks:
            rank.close()


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket on which each signal that arrives is a byte, while the handlers do nothing."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before: dict[int, Any] = {number: signal.signal(number, _nothing) for number in SIGNALS}
    wakeup = signal.set_wakeup_fd(theirs.fileno())
    try:
        yield ours
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _nothing(_number: int, _frame: object) -> None:
    pass
