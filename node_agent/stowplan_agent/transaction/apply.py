"""Applying moves, one component at a time, with an undo for each.

A component either arrives at its target or is where it was (`WeightsEngine.place`), so a failure at any move is undone
by walking the finished moves backwards. After each move the ledger must agree with the allocator; if it does not, the
move has failed like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from stowplan_agent.transaction.faults import Faults
from stowplan_api.placement import ComponentPlacement
from stowplan_api.plan import Move


class ApplyError(RuntimeError):
    """A move failed and everything was undone. ``cause`` is what it raised."""

    def __init__(self, move: Move, number: int, total: int, cause: BaseException) -> None:
        """``number`` counts from 1."""
        self.move = move
        self.cause = cause
        self.out_of_memory = isinstance(cause, torch.OutOfMemoryError)
        first = (str(cause).splitlines() or [type(cause).__name__])[0]
        super().__init__(f"move {number} of {total} (component {move.component} to {move.to.mode}) failed: {first}")


class Weights(Protocol):
    """What applying needs of the weights engine."""

    def place(self, entry: ComponentPlacement) -> None:
        """Bring one component to its entry, or leave it where it is and raise."""


def apply(
    weights: Weights,
    moves: Sequence[Move],
    *,
    check: Callable[[], None],
    faults: Faults | None = None,
) -> None:
    """Make the moves in order. ``check`` is called after each and raises if the accounts disagree.

    Raises `ApplyError` after undoing what was done. An error while undoing is raised as it is: the caller cannot know
    the state any more and must end the process.
    """
    done: list[Move] = []
    for number, move in enumerate(moves, start=1):
        try:
            if faults is not None:
                faults.reach(f"apply.{number}")
            weights.place(move.to)
            done.append(move)
            check()
        except Exception as error:
            for finished in reversed(done):
                assert finished.from_ is not None, "a move made by subtraction knows where it began"
                weights.place(finished.from_)
            check()
            raise ApplyError(move, number, len(moves), error) from error
