"""What a rank's process is given by its supervisor: its number, and descriptors of the board and of the sockets."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

from stowplan_agent.ranks.board import Board
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import RanksError

RANK: Final = "STOWPLAN_RANK"
"""Environment variable: this process's rank, from 0; absent where there is one rank and no supervisor."""
RANKS: Final = "STOWPLAN_RANKS"
"""Environment variable: how many ranks the replica has."""
DESCRIPTORS: Final = "STOWPLAN_RANK_DESCRIPTORS"
"""Environment variable: numbers of inherited descriptors, commas between: board, rendezvous, control, one a peer."""
SUPERVISOR: Final = "STOWPLAN_RANK_SUPERVISOR"
"""Environment variable: the supervisor's process id."""
PDEATHSIG: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h


@dataclass(frozen=True)
class Seat:
    """One rank's end of everything that the supervisor has set up."""

    rank: int
    board: Board
    circle: Circle
    control: socket.socket
    """To the supervisor: messages of the agreement, and nothing else."""
    rendezvous: str
    """Path of an empty file that all ranks share, for what the model's own collectives need to find one another:
    ``torch.distributed.FileStore(seat.rendezvous, seat.ranks)``. On no disk, and no port that another might take.
    """

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.board.ranks

    def doing(self, what: str) -> None:
        """Say what this rank does now, in a few words: it is the end of the sentence if the rank dies of it."""
        self.board.say(self.rank, what)


def environment(rank: int, ranks: int, descriptors: Sequence[int]) -> dict[str, str]:
    """The variables from which `take_seat` finds its way, for descriptors that the process inherits: board, rendezvous,
    control, and one for each other rank, by rank.

    To be called in the supervisor, whose process id is one of them.
    """
    return {
        RANK: str(rank),
        RANKS: str(ranks),
        SUPERVISOR: str(os.getpid()),
        DESCRIPTORS: ",".join(map(str, descriptors)),
    }


def take_seat(variables: MutableMapping[str, str] = os.environ, *, patience: float = 60.0) -> Seat | None:
    """The seat of this process; None where no supervisor has started it. Asks the kernel to end it with its supervisor.

    The variables are taken out, for a program that this process starts has no seat. ``patience``: seconds that the
    ranks wait for one another when they meet. Raises `RanksError` for variables that do not fit together.
    """
    if RANK not in variables:
        return None
    given = {name: variables.pop(name, "") for name in (RANK, RANKS, DESCRIPTORS, SUPERVISOR)}
    try:
        rank, ranks = int(given[RANK]), int(given[RANKS])
        board, meeting, control, *peers = map(int, given[DESCRIPTORS].split(","))
        others = [other for other in range(ranks) if other != rank]
        sockets = {other: socket.socket(fileno=peer) for other, peer in zip(others, peers, strict=True)}
        supervisor = int(given[SUPERVISOR])
        circle = Circle(rank, sockets, patience=patience)
        path = f"/proc/self/fd/{meeting}"
        seat = Seat(rank, Board(board, ranks), circle, socket.socket(fileno=control), path)
    except (ValueError, OSError) as error:
        raise RanksError(f"{RANK} and its like are set by the supervisor and do not fit together: {error!r}") from error
    for descriptor in (board, meeting, control, *peers):
        os.set_inheritable(descriptor, False)
    _end_with(supervisor)
    return seat


def _end_with(supervisor: int) -> None:
    """Ask the kernel to kill this process when its supervisor dies; where that has happened already, end now."""
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os.kill(os.getpid(), signal.SIGKILL)
