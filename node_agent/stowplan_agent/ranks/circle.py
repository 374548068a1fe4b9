"""Ranks that meet: each says a few bytes and hears what every other said, or learns who did not come in time.

For what is set up once: descriptors of shared memory, handles of device memory, barriers. A meeting has a name, so that
ranks that have come to different points find out at once. Everything that is decided goes through `agreement`.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from stowplan_agent.ranks.errors import RankLost, RanksError, first_line

T = TypeVar("T")
_LENGTH: Final = struct.Struct("!I")
LONGEST: Final = 64 << 10
"""Bytes of a contribution: all of them fit into a socket's buffer, so that everybody may speak before he listens."""
MOST_DESCRIPTORS: Final = 250
"""A message of the kernel's carries 253 at most (unix(7), SCM_RIGHTS)."""
REGROUPING: Final = "regroup: "
"""Begins the name of a meeting to which ranks come from wherever they are."""
LONG: Final = 3600.0
"""Seconds that one wait may take: the kernel's own limit is some weeks, and a server may be idle for longer."""


@dataclass(frozen=True)
class Contribution:
    """What one rank brought: a JSON value, and descriptors that are open in this process now."""

    value: Any
    descriptors: tuple[int, ...] = ()


class Circle:
    """One connected stream socket to each of the other ranks."""

    def __init__(
        self,
        rank: int,
        sockets: Mapping[int, socket.socket],
        *,
        clock: Callable[[], float] = time.monotonic,
        patience: float = 60.0,
    ) -> None:
        """``sockets`` by the rank at their other end. ``patience``: seconds that a meeting may take."""
        self.rank = rank
        self.ranks = len(sockets) + 1
        self._sockets = dict(sockets)
        self._clock = clock
        self._patience = patience
        self._regrouped: dict[int, tuple[str, Contribution]] = {}
        """What ranks have brought already to a regrouping that this one has not come to."""

    def meet(
        self, name: str, value: Any = None, descriptors: Sequence[int] = (), *, patience: float | None = None
    ) -> list[Contribution]:
        """Bring a JSON value and open descriptors, and get every rank's, by rank; one's own descriptors as they are.

        Received descriptors are new ones of this process, which it must close. ``patience`` in seconds, if another than
        the circle's. Raises `RankLost` for a rank that is gone or does not come in time, `RanksError` for one that has
        come to another meeting.
        """
        if self._regrouped:
            raise RanksError(f"rank {min(self._regrouped)} goes back while rank {self.rank} comes to {name!r}")
        patience = self._patience if patience is None else patience
        until = self._clock() + patience
        self._speak(name, value, descriptors, patience)
        heard = {self.rank: Contribution(value, tuple(descriptors))}
        try:
            self._listen(name, until, patience, heard)
        except BaseException:
            for rank, contribution in heard.items():
                if rank != self.rank:
                    _close(contribution.descriptors)
            raise
        return [heard[rank] for rank in range(self.ranks)]

    def regroup(self, name: str, value: Any = None, *, level: int = 0, patience: float | None = None) -> list[Any]:
        """Meet for a JSON value wherever the ranks are: what was said for meetings that came to nothing is let pass.

        A rank that waits in such a meeting leaves it with `RanksError` at once, and comes here too; so does one that
        waits in a regrouping of a lower ``level``. Raises `RankLost`, and `RanksError` where another one is called for.
        """
        patience = self._patience if patience is None else patience
        until = self._clock() + patience
        self._speak(f"{REGROUPING}{level}: {name}", value, (), patience)
        found: dict[int, Any] = {self.rank: value}
        for rank, peer in self._sockets.items():
            while rank not in found:
                if rank not in self._regrouped:
                    there, contribution = self._read(name, rank, peer, until)
                    _close(contribution.descriptors)
                    if there.startswith(REGROUPING):
                        self._regrouped[rank] = there, contribution
                    continue
                there, contribution = self._regrouped[rank]
                their_level, _, their_name = there.removeprefix(REGROUPING).partition(": ")
                if int(their_level) > level or (int(their_level) == level and their_name != name):
                    raise RanksError(f"rank {rank} has come to {their_name!r} and rank {self.rank} to {name!r}")
                del self._regrouped[rank]
                if int(their_level) == level:
                    found[rank] = contribution.value
        return [found[rank] for rank in range(self.ranks)]

    def _speak(self, name: str, value: Any, descriptors: Sequence[int], patience: float) -> None:
        message = json.dumps([name, value], separators=(",", ":")).encode()
        if len(message) > LONGEST or len(descriptors) > MOST_DESCRIPTORS:
            raise RanksError(
                f"{name}: {len(message)} bytes and {len(descriptors)} descriptors are more than the {LONGEST} and "
                f"{MOST_DESCRIPTORS} that a meeting takes; meet several times"
            )
        for rank, peer in self._sockets.items():
            try:
                peer.settimeout(min(patience, LONG))
                socket.send_fds(peer, [_LENGTH.pack(len(message))], descriptors)
                peer.sendall(message)
            except OSError as error:
                raise RankLost(rank, f"rank {rank} is gone before the ranks met for {name!r} ({error})") from error

    def all_do(self, name: str, work: Callable[[], T], *, patience: float | None = None) -> T:
        """Do something on every rank, and meet when it is done: a failure of one is a failure of all.

        Returns what this rank's work returns. Raises what it raises, or `RanksError` with another rank's reason.
        """
        error: Exception | None = None
        try:
            done = work()
        except Exception as failed:
            error = failed
        met = self.meet(name, None if error is None else first_line(error), patience=patience)
        if error is not None:
            raise error
        for rank, contribution in enumerate(met):
            if contribution.value is not None:
                raise RanksError(f"rank {rank} could not {name}: {contribution.value}")
        return done

    def close(self) -> None:
        """Leave: whoever still meets learns that this rank is gone."""
        for peer in self._sockets.values():
            peer.close()

    def _listen(self, name: str, until: float, patience: float, heard: dict[int, Contribution]) -> None:
        apart: RanksError | None = None
        with selectors.DefaultSelector() as waiting:
            for rank, peer in self._sockets.items():
                waiting.register(peer, selectors.EVENT_READ, rank)
            while len(heard) < self.ranks:
                ready = waiting.select(min(LONG, max(0.0, until - self._clock())))
                if not ready and self._clock() >= until:
                    silent = min(set(self._sockets) - heard.keys())
                    raise RankLost(
                        silent,
                        f"rank {silent} did not come to {name!r} within {patience:g} s of rank {self.rank}",
                    )
                for key, _ in ready:
                    rank, peer = key.data, self._sockets[key.data]
                    waiting.unregister(peer)
                    there, heard[rank] = self._read(name, rank, peer, until)
                    if there.startswith(REGROUPING):
                        self._regrouped[rank] = there, heard[rank]
                        raise RanksError(f"rank {rank} goes back while rank {self.rank} is at {name!r}")
                    if there != name:
                        apart = apart or RanksError(
                            f"rank {rank} has come to {there!r} and rank {self.rank} to {name!r}: they run apart"
                        )
        if apart is not None:  # raised once all were heard, so that no word is left for the next meeting
            raise apart

    def _read(self, name: str, rank: int, peer: socket.socket, until: float) -> tuple[str, Contribution]:
        descriptors: list[int] = []
        try:
            peer.settimeout(min(LONG, max(0.001, until - self._clock())))
            head, descriptors, _, _ = socket.recv_fds(peer, _LENGTH.size, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            head += _read_exactly(peer, _LENGTH.size - len(head)) if head else b""
            if not head:
                raise ConnectionError("its socket was closed")
            there, value = json.loads(_read_exactly(peer, _LENGTH.unpack(head)[0]))
        except (OSError, ValueError) as error:
            _close(descriptors)
            raise RankLost(rank, f"rank {rank} was lost while the ranks met for {name!r} ({error})") from error
        return there, Contribution(value, tuple(descriptors))


def _read_exactly(peer: socket.socket, nbytes: int) -> bytes:
    found = b""
    while len(found) < nbytes:
        part = peer.recv(nbytes - len(found))
        if not part:
            raise ConnectionError("its socket was closed")
        found += part
    return found


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
