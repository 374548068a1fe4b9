"""The process above the ranks: starts one a GPU, passes on signals and output, and ends all when one is lost.

It has no device and no weights, so it lives when a rank does not: it can say how that ended, and it is where the chair
of the agreement stands. One thread waits for everything at once (ends of processes, output, messages, signals,
deadlines); what to do about it is decided by `Fleet`, `Chair` and `Pace`.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from stowplan_agent.ranks.agreement.deadlines import Deadlines
from stowplan_agent.ranks.agreement.table import Table
from stowplan_agent.ranks.board import Board, Turn
from stowplan_agent.ranks.supervision.endings import Ending
from stowplan_agent.ranks.supervision.fleet import Action, Fleet, Grace, Send
from stowplan_agent.ranks.supervision.memory import out_of_memory_kills
from stowplan_agent.ranks.supervision.output import RankOutput
from stowplan_agent.ranks.supervision.pace import Pace
from stowplan_agent.ranks.supervision.processes import RankProcess, start_ranks
from stowplan_agent.ranks.supervision.signals import signals_on_socket
from stowplan_api.contract import ROLLBACK_FAILED_EXIT

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
CHUNK: Final = 64 << 10
DEFAULT_GRACE: Final = Grace()
DEFAULT_DEADLINES: Final = Deadlines()
LOOK_SECONDS: Final = 5.0
"""Between looks at the pace."""


class Supervisor:
    """The ranks of one replica on one node. `run` must be called from the main thread: signals come there."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        variables: Mapping[str, str] = os.environ,
        grace: Grace = DEFAULT_GRACE,
        deadlines: Deadlines = DEFAULT_DEADLINES,
        patience: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        output: tuple[BinaryIO, BinaryIO] | None = None,
        root: Path = Path("/"),
    ) -> None:
        """``commands``: one a rank. ``output``: where lines of the ranks go, instead of this process's own output.

        ``patience``: seconds that ranks may wait for a turn of another one before all are ended.
        """
        self.board = Board.make(len(commands))
        self.fleet = Fleet(frozenset(range(len(commands))), grace)
        self._commands = commands
        self._variables = variables
        self._clock = clock
        self._output = output or (sys.stdout.buffer, sys.stderr.buffer)
        self._root = root
        self._selector = selectors.DefaultSelector()
        self._ranks: list[RankProcess] = []
        self._outputs: list[RankOutput] = []
        self._kills = 0
        self._deadlines = deadlines
        self._patience = patience
        self._pace = Pace(self._counters(), clock())

    def run(self) -> int:
        """Start the ranks and stay until none runs; the exit code for the whole. Says why on the error output."""
        self._kills = out_of_memory_kills(self._root)
        with signals_on_socket(SIGNALS) as signals:
            self._selector.register(signals, selectors.EVENT_READ, partial(self._hear, signals))
            self._ranks = start_ranks(self._commands, self._variables, self.board)
            try:
                self._table = Table([rank.control for rank in self._ranks], self._deadlines)
                for rank in self._ranks:
                    self._watch(rank)
                while not self.fleet.over:
                    self._wait()
            finally:
                self._end()
        if self.fleet.cause is not None:
            self._output[1].write(f"{self.fleet.cause}\n".encode())
            self._output[1].flush()
        return self.fleet.code

    def _watch(self, rank: RankProcess) -> None:
        self._selector.register(rank.pidfd, selectors.EVENT_READ, partial(self._ended, rank))
        self._selector.register(rank.control, selectors.EVENT_READ, partial(self._talk, rank))
        for descriptor, to in zip(rank.output, self._output, strict=True):
            output = RankOutput(rank.rank, descriptor, to)
            self._outputs.append(output)
            self._selector.register(descriptor, selectors.EVENT_READ, partial(self._pass_on, output))

    def _wait(self) -> None:
        now = self._clock()
        deadlines = [
            now + min(LOOK_SECONDS, self._patience / 2),
            self._table.deadline,
            None if self.fleet.killed else self.fleet.deadline,
        ]
        for key, _ in self._selector.select(max(0.0, min(one for one in deadlines if one is not None) - now)):
            key.data()
        now = self._clock()
        self._table.look(now)
        self._pace, stands = self._pace.look(self._counters(), now, self._patience)
        if (cause := self._table.ended or stands) is not None:
            self._do(self.fleet.failed(cause, ROLLBACK_FAILED_EXIT, now))
        for rank in self._ranks:
            self._expect(rank)
        self._do(self.fleet.look(now))

    def _counters(self) -> tuple[tuple[int, int], ...]:
        board = self.board
        return tuple(
            (int(board.counter(rank, Turn.FETCHED)[0]), int(board.counter(rank, Turn.SWAPPED)[0]))
            for rank in range(board.ranks)
        )

    def _talk(self, rank: RankProcess) -> None:
        if rank.control not in self._selector.get_map():
            return  # its end was noticed in the same look
        self._table.send(rank.rank)
        if not self._table.read(rank.rank, self._clock()):
            self._selector.unregister(rank.control)

    def _expect(self, rank: RankProcess) -> None:
        """Wait until a rank can be written to only where there is something to write."""
        if rank.control in self._selector.get_map():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._table.has_unsent(rank.rank) else 0)
            key = self._selector.get_key(rank.control)
            if key.events != wanted:
                self._selector.modify(rank.control, wanted, key.data)

    def _do(self, step: tuple[Fleet, tuple[Action, ...]]) -> None:
        self.fleet, actions = step
        for action in actions:
            if isinstance(action, Send):
                self._ranks[action.rank].send(action.signal)
            else:
                self.board.release()

    def _ended(self, rank: RankProcess) -> None:
        self._selector.unregister(rank.pidfd)
        self._talk(rank)  # what it said last says more than its exit code
        if (cause := self._table.ended) is not None:
            self._do(self.fleet.failed(cause, ROLLBACK_FAILED_EXIT, self._clock()))
        code = rank.reap()
        kills = out_of_memory_kills(self._root)
        ending = Ending(rank.rank, code, self.board.doing(rank.rank), kills > self._kills)
        self._do(self.fleet.ended(ending, self._clock()))

    def _hear(self, signals: socket.socket) -> None:
        for number in signals.recv(CHUNK):
            if number in SIGNALS:
                self._do(self.fleet.hear(number, self._clock()))

    def _pass_on(self, output: RankOutput) -> None:
        if not output.pass_on():
            self._selector.unregister(output.descriptor)

    def _end(self) -> None:
        """No orphan, no zombie, no line lost: also where the supervisor itself fails."""
        for rank in self._ranks:
            if rank.rank in self.fleet.running:
                rank.reap()
        for output in self._outputs:
            output.pass_on()
        self._selector.close()
        for rank in self._ranks:
            rank.close()
