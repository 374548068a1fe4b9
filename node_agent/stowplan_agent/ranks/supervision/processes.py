"""One rank's process: started with its seat, in a session of its own, so that whatever it starts ends with it.

The kill switch's signal is passed on to ranks at any moment, so it is held back in them until they hear it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations

from stowplan_agent import switch_signal
from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.seat import environment


class RankProcess:
    """A started rank: its process, a descriptor that becomes readable at its end, its output, its control socket."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        """Of `start_ranks`."""
        self.rank = rank
        self.control = control
        self._process = process
        self.pidfd = os.pidfd_open(process.pid)
        assert process.stdout is not None and process.stderr is not None, "both are pipes"
        self.output = (process.stdout.fileno(), process.stderr.fileno())

    @property
    def pid(self) -> int:
        """Its process id, and that of its session and group."""
        return self._process.pid

    def send(self, number: int) -> None:
        """A signal to the rank and to all that it has started; nothing where none is left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> int:
        """Its exit code, below 0 for a signal, once it is over. Ends what it has started, and leaves no zombie."""
        self.send(signal.SIGKILL)  # while its process id is still its own
        return self._process.wait()

    def close(self) -> None:
        """Close what the supervisor holds of it."""
        os.close(self.pidfd)
        self.control.close()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def start_ranks(commands: Sequence[Sequence[str]], variables: Mapping[str, str], board: Board) -> list[RankProcess]:
    """One process a command, rank by rank. Raises OSError with none of them left running."""
    ranks = len(commands)
    peers: list[dict[int, socket.socket]] = [{} for _ in commands]
    for one, other in combinations(range(ranks), 2):
        peers[one][other], peers[other][one] = socket.socketpair()
    started: list[RankProcess] = []
    meeting = os.memfd_create("stowplan-rendezvous")
    try:
        for rank, command in enumerate(commands):
            ours, theirs = socket.socketpair()
            ends = [peers[rank][other].fileno() for other in sorted(peers[rank])]
            inherited = (board.descriptor, meeting, theirs.fileno(), *ends)
            with switch_signal.held_back_in_children():
                process = subprocess.Popen(
                    command,
                    env={**variables, **environment(rank, ranks, inherited)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=inherited,
                    start_new_session=True,
                )
            theirs.close()
            started.append(RankProcess(rank, process, ours))
    except BaseException:
        for one_started in started:
            one_started.reap()
            one_started.close()
        raise
    finally:
        # Only the ranks have the ends now: one that dies is noticed by those that read from it.
        os.close(meeting)
        for ends_of in peers:
            for end in ends_of.values():
                end.close()
    return started
