"""The chair of the agreement, as a machine of values: what it knows, what it hears, what it orders.

Each step is ordered from all ranks and ends when all have answered, one has failed, or its deadline has come. Until
the target is proven on every rank, a failure anywhere has every rank go back; from then on, and while they go back,
there is no other way than on, so a failure there ends all processes. A rank that dies ends all at once: its weights
are gone with it. No rank serves before all are known to be in the same proven placement. Every phase in which
something is waited for has a deadline (`waits`), and whatever does not belong to the present step is let pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from stowplan_agent.ranks.agreement.messages import Answer, Order, Step


class ChairPhase(StrEnum):
    """Where a round is."""

    IDLE = "idle"
    """No round was begun yet, and nobody serves."""
    ASKING = "asking"
    """A step was ordered, and answers are waited for."""
    SERVING = "serving"
    """All ranks serve in the same placement."""
    ENDED = "ended"
    """All processes are to be ended."""


BEFORE: Final = frozenset({ChairPhase.IDLE, ChairPhase.SERVING})
"""Phases in which a round can begin."""
UNDONE: Final = frozenset({Step.MEASURE, Step.SOLVE, Step.APPLY, Step.VALIDATE})
"""Steps whose failure is undone; of the others it is the end."""

Sent = tuple[tuple[int, Order], ...]
"""Orders by rank."""


@dataclass(frozen=True)
class Chair:
    """The state. Each method returns the next one and the orders to be sent. Placements are values with equality."""

    ranks: int
    in_force: Any = None
    """The placement that was proven last, on all ranks; before the first round, what the ranks begin with."""
    phase: ChairPhase = ChairPhase.IDLE
    round: int = 0
    step: Step = Step.BEGIN
    target: Any = None
    answers: tuple[tuple[int, Any], ...] = ()
    """Of this step: rank and body of those that have done it."""
    early: tuple[tuple[int, Answer], ...] = ()
    """Ranks that are ready for the next round before all have said that they serve."""
    cause: str | None = None
    """Why this round was rolled back, or why all ends: one sentence, the first one that there was."""

    @property
    def waits(self) -> Step | None:
        """The step whose deadline runs; None where nothing is waited for."""
        return self.step if self.phase is ChairPhase.ASKING else None

    def hear(self, rank: int, answer: Answer) -> tuple[Chair, Sent]:
        """A rank has answered. The first that is ready for a new round begins it."""
        if answer.step is Step.BEGIN and answer.round == self.round + 1:
            return self._hear_begin(rank, answer)
        awaited = self.phase is ChairPhase.ASKING and (answer.round, answer.step) == (self.round, self.step)
        if not awaited or rank not in self._asked() or any(rank == one for one, _ in self.answers):
            return self, ()
        if not answer.ok:
            return self._failed(f"rank {rank} could not {self.step}: {answer.body}")
        heard = replace(self, answers=(*self.answers, (rank, answer.body)))
        return heard._go_on() if len(heard.answers) == len(self._asked()) else (heard, ())

    def late(self, number: int, step: Step) -> tuple[Chair, Sent]:
        """The deadline of a step of a round has come."""
        if self.phase is not ChairPhase.ASKING or (number, step) != (self.round, self.step):
            return self, ()
        silent = sorted(self._asked() - {rank for rank, _ in self.answers})
        names = " and ".join(f"rank {rank}" for rank in silent)
        return self._failed(f"{names} did not {self.step} in time")

    def lost(self, rank: int, how: str) -> tuple[Chair, Sent]:
        """A rank's process is gone, or cannot be understood."""
        return self._end(f"rank {rank} is lost: {how}")

    def _hear_begin(self, rank: int, answer: Answer) -> tuple[Chair, Sent]:
        if self.phase in BEFORE:
            fresh = replace(self, phase=ChairPhase.ASKING, step=Step.BEGIN, round=answer.round, target=None, cause=None)
            return fresh.hear(rank, answer)
        if self.waits is Step.SERVE and (rank, answer) not in self.early:
            return replace(self, early=(*self.early, (rank, answer))), ()
        return self, ()

    def _asked(self) -> frozenset[int]:
        return frozenset({0}) if self.step is Step.SOLVE else frozenset(range(self.ranks))

    def _ask(self, step: Step, body: Any) -> tuple[Chair, Sent]:
        asking = replace(self, step=step, answers=())
        return asking, tuple((rank, Order(self.round, step, body)) for rank in sorted(asking._asked()))

    def _go_on(self) -> tuple[Chair, Sent]:
        """All that were asked have done the step."""
        bodies = [body for _, body in sorted(self.answers, key=lambda answer: answer[0])]
        if self.step is Step.BEGIN:
            if (self.round > 1 and bodies[0] != self.in_force) or any(body != bodies[0] for body in bodies):
                return self._end("ranks begin in different placements")
            return replace(self, in_force=bodies[0])._ask(Step.MEASURE, None)
        if self.step is Step.MEASURE:
            return self._ask(Step.SOLVE, bodies)
        if self.step is Step.SOLVE:
            (target,) = bodies
            if target == self.in_force:
                return self._ask(Step.SERVE, self.in_force)
            return replace(self, target=target)._ask(Step.APPLY, target)
        if self.step is Step.APPLY:
            if any(body != self.target for body in bodies):
                return self._failed("ranks say that they are in different placements")
            return self._ask(Step.VALIDATE, None)
        if self.step is Step.VALIDATE:
            return self._ask(Step.COMMIT, None)
        if self.step is Step.COMMIT:
            return replace(self, in_force=self.target)._ask(Step.SERVE, self.target)
        if self.step is Step.ROLL_BACK:
            if any(body != self.in_force for body in bodies):
                return self._end("ranks say that they went back to different placements")
            return self._ask(Step.SERVE, self.in_force)
        return self._serve()

    def _serve(self) -> tuple[Chair, Sent]:
        """All serve; those that are past it already begin the next round at once."""
        chair: Chair = replace(self, phase=ChairPhase.SERVING, answers=(), early=())
        sent: Sent = ()
        for rank, answer in self.early:
            chair, more = chair.hear(rank, answer)
            sent += more
        return chair, sent

    def _failed(self, cause: str) -> tuple[Chair, Sent]:
        if self.step not in UNDONE:
            return self._end(f"{cause}; before that: {self.cause}" if self.cause else cause)
        return replace(self, cause=cause)._ask(Step.ROLL_BACK, self.in_force)

    def _end(self, cause: str) -> tuple[Chair, Sent]:
        if self.phase is ChairPhase.ENDED:
            return self, ()
        return replace(self, phase=ChairPhase.ENDED, answers=(), cause=cause), ()
