"""A member of the agreement, as a machine of values: one rank, what it was ordered, and what it does.

It does one step at a time, answers, and waits for the next order; an order that it has done already is answered again
and not done again, and one that a later one has overtaken is let pass. It serves only what is in force on it, and only
when ordered to. Where it waits for the chair it has a deadline of its own: a rank that hears no more must not go on,
nor go back by itself, for the others may have done either; it ends. A rollback that fails ends it as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from stowplan_agent.ranks.agreement.messages import Answer, Order, Step


class MemberPhase(StrEnum):
    """What a rank is at."""

    IDLE = "idle"
    """Nothing was ordered yet."""
    WORKING = "working"
    WAITING = "waiting"
    """It has answered, and waits for the next order."""
    SERVING = "serving"
    ENDED = "ended"
    """The process is to end."""


@dataclass(frozen=True)
class Work:
    """To be done now: a step, with the body of its order."""

    step: Step
    body: Any


@dataclass(frozen=True)
class Say:
    """To be sent to the chair."""

    answer: Answer


@dataclass(frozen=True)
class End:
    """The process is to end, with this sentence."""

    cause: str


Done = tuple[Work | Say | End, ...]


@dataclass(frozen=True)
class Member:
    """The state. Each method returns the next one and what is to be done for it."""

    rank: int
    in_force: Any
    """The placement that this rank may serve."""
    phase: MemberPhase = MemberPhase.IDLE
    order: Order | None = None
    """The last one that was taken up."""
    answer: Answer | None = None
    """To that one, once it is done."""
    target: Any = None
    next: Order | None = None
    """Came while another was being done: what comes so has overtaken it."""

    @property
    def waits(self) -> Step | None:
        """The step after whose answer the next order is waited for; None where none is."""
        return self.order.step if self.phase is MemberPhase.WAITING and self.order is not None else None

    @property
    def overtaken(self) -> bool:
        """Whether what is being done is wanted no more: it may be broken off, with its own undoing."""
        return self.next is not None

    def begin(self) -> tuple[Member, Done]:
        """This rank is ready for a round: it serves no more, and its weights are in what is in force."""
        if self.phase not in (MemberPhase.IDLE, MemberPhase.SERVING):
            return self, ()
        number = self.order.round + 1 if self.order is not None else 1
        answer = Answer(number, Step.BEGIN, True, self.in_force)
        order = Order(number, Step.BEGIN)
        return replace(self, phase=MemberPhase.WAITING, order=order, answer=answer), (Say(answer),)

    def take(self, order: Order) -> tuple[Member, Done]:
        """An order has come."""
        if self.phase is MemberPhase.ENDED:
            return self, ()
        last = self.next or self.order
        if last is not None and order.position < last.position:
            return self, ()
        if last is not None and order.position == last.position:
            again = self.answer if self.next is None else None
            return self, (Say(again),) if again is not None else ()
        if self.phase is MemberPhase.WORKING:
            return replace(self, next=order), ()
        return self._start(order)

    def done(self, ok: bool, body: Any) -> tuple[Member, Done]:
        """The work is over: with what it came to, or why it failed."""
        assert self.phase is MemberPhase.WORKING and self.order is not None, "only work that was begun is over"
        step = self.order.step
        answer = Answer(self.order.round, step, ok, body)
        if not ok and step is Step.ROLL_BACK:
            ended = replace(self, phase=MemberPhase.ENDED, answer=answer, next=None)
            return ended, (Say(answer), End(f"rank {self.rank} could not roll back: {body}"))
        here = replace(self, phase=MemberPhase.WAITING, answer=answer)
        if ok and step is Step.COMMIT:
            here = replace(here, in_force=self.target)
        if here.next is not None:
            return replace(here, next=None)._start(here.next)
        return here, (Say(answer),)

    def late(self) -> tuple[Member, Done]:
        """The deadline of waiting has come."""
        if self.phase is not MemberPhase.WAITING:
            return self, ()
        cause = f"rank {self.rank} was told nothing more after it had done its part ({self.waits})"
        return replace(self, phase=MemberPhase.ENDED), (End(cause),)

    def _start(self, order: Order) -> tuple[Member, Done]:
        taken = replace(self, order=order, answer=None)
        if order.step is Step.SERVE:
            if order.body != self.in_force:
                ended = replace(taken, phase=MemberPhase.ENDED)
                return ended, (End(f"rank {self.rank} was told to serve another placement than the one in force"),)
            answer = Answer(order.round, order.step, True, order.body)
            return replace(taken, phase=MemberPhase.SERVING, answer=answer), (Say(answer),)
        if order.step is Step.APPLY:
            taken = replace(taken, target=order.body)
        return replace(taken, phase=MemberPhase.WORKING), (Work(order.step, order.body),)
