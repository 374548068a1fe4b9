"""A member's end of its socket: takes part in a round, doing each step in the thread that calls it.

What a step does is given as a function of the order's body; what it raises is the answer of a rank that could not.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from stowplan_agent.ranks.agreement.deadlines import Deadlines
from stowplan_agent.ranks.agreement.member import Done, End, Member, MemberPhase, Say, Work
from stowplan_agent.ranks.agreement.messages import Frames, MessageError, Order, Step, encode
from stowplan_agent.ranks.errors import RanksError, first_line

CHUNK = 256 << 10
Works = Mapping[Step, Callable[[Any], Any]]
"""What to do at each step but the first and the last: order's body in, answer's body out, both JSON values."""


class AgreementEnded(RanksError):  # noqa: N818 - an end, of which this is one
    """This rank must end: it does not know, or cannot reach, what the others are in."""


class Overtaken(RanksError):  # noqa: N818 - what it says of the work that is broken off
    """What this rank does is wanted no more, for another one has failed: break it off and leave things as they were."""


class Delegate:
    """One rank's member. Use it from one thread."""

    def __init__(
        self,
        rank: int,
        control: socket.socket,
        in_force: Any,
        *,
        deadlines: Deadlines = Deadlines(),  # noqa: B008 - a value that cannot change
        clock: Callable[[], float] = time.monotonic,
        doing: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``in_force``: the placement that the weights are in, as JSON. ``doing`` is told each step (`Seat.doing`)."""
        self._member = Member(rank, _plain(in_force))
        self._control = control
        self._deadlines = deadlines
        self._clock = clock
        self._doing = doing
        self._frames = Frames()
        self._inbox: list[Order] = []

    @property
    def in_force(self) -> Any:
        """The placement that this rank may serve, as JSON."""
        return self._member.in_force

    def agree(self, works: Works) -> Any:
        """Take part in a round, from saying that this rank is ready; returns the placement to be served from now on.

        It is the one of before where any rank could not go on. Raises `AgreementEnded` where this process must end.
        """
        self._do(self._member.begin(), works)
        while self._member.phase is not MemberPhase.SERVING:
            waits = self._member.waits
            assert waits is not None, "work is done at once, so what is left is waiting"
            order = self._receive(self._clock() + self._deadlines.after(waits))
            self._do(self._member.late() if order is None else self._member.take(order), works)
        return self._member.in_force

    def interrupt(self) -> None:
        """Raise `Overtaken` if what is being done is wanted no more. To be called between moves."""
        while (order := self._receive(None)) is not None:
            self._member, _ = self._member.take(order)
        if self._member.overtaken:
            raise Overtaken("another rank has failed, so this one leaves off")

    def _do(self, step: tuple[Member, Done], works: Works) -> None:
        self._member, done = step
        for one in done:
            if isinstance(one, Say):
                self._control.settimeout(self._deadlines.serve)
                try:
                    self._control.sendall(encode(one.answer))
                except OSError as error:
                    raise AgreementEnded(f"the supervisor does not listen any more ({error})") from error
            elif isinstance(one, End):
                raise AgreementEnded(one.cause)
            elif isinstance(one, Work):
                self._doing(f"at {one.step} of round {self._member.order.round if self._member.order else 0}")
                try:
                    finished = (True, _plain(works[one.step](one.body)))
                except Exception as error:
                    finished = (False, first_line(error))
                self._do(self._member.done(*finished), works)

    def _receive(self, until: float | None) -> Order | None:
        """The next order; None once it is late, or, without ``until``, where none is there."""
        while not self._inbox:
            left = 0.0 if until is None else until - self._clock()
            if until is not None and left <= 0:
                return None
            self._control.settimeout(left)
            try:
                received = self._control.recv(CHUNK)
            except (BlockingIOError, TimeoutError):
                return None
            except OSError as error:
                raise AgreementEnded(f"the supervisor is gone ({error})") from error
            if not received:
                raise AgreementEnded("the supervisor is gone")
            try:
                self._inbox += [one for one in self._frames.feed(received) if isinstance(one, Order)]
            except MessageError as error:
                raise AgreementEnded(f"the supervisor cannot be understood: {error}") from error
        return self._inbox.pop(0)


def _plain(value: Any) -> Any:
    """The value as it is on the other side: tuples are lists there, and keys are text."""
    return json.loads(json.dumps(value))
