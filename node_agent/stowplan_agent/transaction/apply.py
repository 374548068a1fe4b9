"""Applying moves, one component at a time, with an undo for each.

A component either arrives at its target or is where it was (`WeightsEngine.place`), so a failure at any move is undone
by walking the moves backwards. After each move the ledger must agree with the allocator; if it does not, the move has
failed like any other. After an undo everything is compared with the snapshot that was taken first: either memory is
what it was, or nobody knows what it is and the process must end.

Memory that is free in pieces may do once the allocator has given them back: the first move that runs out of device
memory is tried a second time, from where it began, with an empty cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.transaction.faults import Faults
from stowplan_agent.weights.snapshot import Snapshot
from stowplan_api.placement import ComponentPlacement
from stowplan_api.plan import Move

_log = logging.getLogger(__name__)


class ApplyError(RuntimeError):
    """A move failed and everything was undone. ``cause`` is what it raised."""

    def __init__(self, move: Move, number: int, total: int, cause: BaseException) -> None:
        """``number`` counts from 1."""
        self.move = move
        self.cause = cause
        self.out_of_memory = isinstance(cause, torch.OutOfMemoryError)
        super().__init__(
            f"move {number} of {total} (component {move.component} to {move.to.mode}) failed: {_first_line(cause)}"
        )


class UndoError(RuntimeError):
    """A move failed, and undoing what was done failed as well: nobody knows where the weights are."""

    def __init__(self, failed: ApplyError, cause: BaseException) -> None:
        """``failed`` is the move that was to be undone, ``cause`` what undoing raised."""
        self.failed = failed
        super().__init__(f"{failed}; undoing it failed: {_first_line(cause)}")


class Weights(Protocol):
    """What applying needs of the weights engine."""

    @property
    def accelerator(self) -> Accelerator:
        """Whose memory is taken."""
        ...

    def place(self, entry: ComponentPlacement) -> None:
        """Bring one component to its entry, or leave it where it is and raise."""

    def snapshot(self) -> Snapshot:
        """What is held now."""
        ...

    def drop_new_copies(self, before: Snapshot) -> None:
        """Give back host copies that a snapshot does not have."""


def apply(
    weights: Weights,
    moves: Sequence[Move],
    *,
    check: Callable[[], None],
    interrupt: Callable[[], None] = lambda: None,
    faults: Faults | None = None,
) -> None:
    """Make the moves in order. ``check`` is called after each and raises if the accounts disagree.

    ``interrupt`` is called after each as well, and raises if the rest is not to be made; never while moves are undone,
    for that must not be broken off.

    Raises `ApplyError` after undoing what was done, and `UndoError` where that failed: the state is not known any
    more, and the process must end.
    """
    before, again = weights.snapshot(), True
    for number, move in enumerate(moves, start=1):
        try:
            if faults is not None:
                faults.reach(f"apply.{number}")
            again = not _make(weights, move, again=again) and again
            check()
            interrupt()
        except Exception as error:
            failed = ApplyError(move, number, len(moves), error)
            try:
                _undo(weights, moves[:number], before)
                check()
            except Exception as second:
                raise UndoError(failed, second) from error
            raise failed from error


def _make(weights: Weights, move: Move, *, again: bool) -> bool:
    """Make one move, a second time if it runs out of device memory and may do so; whether it did."""
    before = weights.snapshot()
    try:
        weights.place(move.to)
    except torch.OutOfMemoryError:
        if not again or weights.snapshot() != before:
            raise
    else:
        return False
    _log.warning(
        "component %s to %s ran out of device memory; once more, with an empty cache", move.component, move.to.mode
    )
    weights.accelerator.empty_cache()
    weights.place(move.to)
    return True


def _undo(weights: Weights, moves: Sequence[Move], before: Snapshot) -> None:
    """The failed move as well: its component says that it is where it was, and this makes sure of it."""
    for move in reversed(moves):
        assert move.from_ is not None, "a move made by subtraction knows where it began"
        weights.place(move.from_)
    weights.drop_new_copies(before)
    after = weights.snapshot()
    if after != before:
        raise RuntimeError(f"memory is not what it was: {_difference(before, after)}")


def _difference(before: Snapshot, after: Snapshot) -> str:
    """The first component that differs, in numbers."""
    for name in before.entries:
        was, now = ((one.device_bytes[name], one.host_bytes[name]) for one in (before, after))
        if was != now:
            return f"component {name} had {was[0]} bytes on the device and {was[1]} on the host, and has {now}"
    return "host copies of other layers, or other entries"


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
