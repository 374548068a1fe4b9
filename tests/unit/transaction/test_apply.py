"""Applying moves: in order, checked after each; a failure at any of them undoes all before it, newest first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from stowplan_agent.transaction import ApplyError, Faults, UndoError, apply, difference
from stowplan_agent.weights.snapshot import Snapshot
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Move

NAMES = ("a", "b", "c", "d")


def everywhere(mode: str) -> Placement:
    return Placement.model_validate({"components": [{"name": name, "mode": mode} for name in NAMES]})


MOVES = difference(everywhere("Offload"), everywhere("Resident"))


@dataclass
class Cache:
    """Memory that nothing uses."""

    emptied: int = 0

    def empty_cache(self) -> None:
        self.emptied += 1


@dataclass
class Record:
    """Weights that are where they were placed last, and a history. ``fails`` maps a component and mode to an error."""

    fails: dict[tuple[str, str], BaseException] = field(default_factory=dict)
    history: list[tuple[str, str]] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)
    """Bytes that a component still has on the host after it came back."""
    checks: int = 0
    dropped: Snapshot | None = None
    cache: Cache = field(default_factory=Cache)
    pieces: bool = False
    """Whether what fails does so for want of memory that the cache holds."""
    fail_check: int = 0
    """Number of the check that fails, from 1; 0 for none."""

    @property
    def accelerator(self) -> Any:
        return self.cache

    def place(self, entry: ComponentPlacement) -> None:
        error = self.fails.get((entry.name, entry.mode))
        if error is not None and not (self.pieces and self.cache.emptied):
            raise error
        self.history.append((entry.name, entry.mode))

    def snapshot(self) -> Snapshot:
        there = self.where()
        entries = {entry.name: entry for entry in everywhere("Offload").components}
        entries |= {name: entry.model_copy(update={"mode": there[name]}) for name, entry in entries.items()}
        moved = {name for name, _ in self.history}
        host = {name: self.kept.get(name, 0) if name in moved else 0 for name in NAMES}
        return Snapshot(entries, dict.fromkeys(NAMES, frozenset()), dict.fromkeys(NAMES, 0), host)

    def drop_new_copies(self, before: Snapshot) -> None:
        self.dropped = before

    def check(self) -> None:
        self.checks += 1
        if self.checks == self.fail_check:
            raise RuntimeError("the ledger says 1, the allocator 2")

    def where(self) -> dict[str, str]:
        return dict.fromkeys(NAMES, "Offload") | dict(self.history)


def test_moves_are_made_in_order_and_checked_after_each() -> None:
    weights = Record()
    apply(weights, MOVES, check=weights.check)
    assert weights.history == [(name, "Resident") for name in NAMES]
    assert weights.checks == len(MOVES)


def test_no_moves_touch_nothing() -> None:
    weights = Record()
    apply(weights, (), check=weights.check)
    assert (weights.history, weights.checks) == ([], 0)


@pytest.mark.parametrize("number", range(1, len(MOVES) + 1))
def test_a_failure_at_any_move_undoes_all_before_it_newest_first(number: int) -> None:
    failing = NAMES[number - 1]
    weights = Record(fails={(failing, "Resident"): RuntimeError("no")})
    with pytest.raises(ApplyError) as caught:
        apply(weights, MOVES, check=weights.check)
    made = NAMES[: number - 1]
    back = [*reversed(made)]  # and before them the one that failed, to make sure of it
    assert weights.history == [(n, "Resident") for n in made] + [(n, "Offload") for n in (failing, *back)]
    assert weights.dropped == Record().snapshot()
    assert weights.where() == dict.fromkeys(NAMES, "Offload")
    assert str(caught.value) == f"move {number} of 4 (component {failing} to Resident) failed: no"
    assert caught.value.move == MOVES[number - 1]
    assert not caught.value.out_of_memory


@pytest.mark.parametrize("number", range(1, len(MOVES) + 1))
def test_an_injected_fault_at_any_move_rolls_back(number: int) -> None:
    weights = Record()
    with pytest.raises(ApplyError, match=rf"fault apply\.{number} was injected"):
        apply(weights, MOVES, check=weights.check, faults=Faults(f"apply.{number}"))
    assert weights.where() == dict.fromkeys(NAMES, "Offload")


@pytest.mark.parametrize("number", range(1, len(MOVES) + 1))
def test_accounts_that_disagree_undo_the_move_that_was_just_made_as_well(number: int) -> None:
    weights = Record(fail_check=number)
    with pytest.raises(ApplyError, match="the ledger says 1, the allocator 2"):
        apply(weights, MOVES, check=weights.check)
    assert weights.where() == dict.fromkeys(NAMES, "Offload")
    assert len(weights.history) == 2 * number


def test_t5_a_move_that_runs_out_of_memory_is_tried_again_with_an_empty_cache() -> None:
    short = {("b", "Resident"): torch.OutOfMemoryError("no"), ("c", "Resident"): torch.OutOfMemoryError("no")}
    weights = Record(fails=dict(short), pieces=True)
    apply(weights, MOVES, check=weights.check)
    assert weights.where() == dict.fromkeys(NAMES, "Resident")
    assert weights.cache.emptied == 1

    weights = Record(fails=dict(short))
    with pytest.raises(ApplyError, match="component b to Resident"):
        apply(weights, MOVES, check=weights.check)
    assert weights.where() == dict.fromkeys(NAMES, "Offload")
    assert weights.cache.emptied == 1  # once an apply, not once a move


def test_nothing_but_memory_is_tried_again() -> None:
    weights = Record(fails={("b", "Resident"): RuntimeError("no")}, pieces=True)
    with pytest.raises(ApplyError, match="component b to Resident"):
        apply(weights, MOVES, check=weights.check)
    assert weights.cache.emptied == 0


def test_out_of_memory_is_told_apart() -> None:
    weights = Record(fails={("b", "Resident"): torch.OutOfMemoryError("CUDA out of memory.\nTried ...")})
    with pytest.raises(ApplyError, match=r"failed: CUDA out of memory\.$") as caught:
        apply(weights, MOVES, check=weights.check)
    assert caught.value.out_of_memory


def test_a_failure_while_undoing_is_another_error_with_both_causes() -> None:
    weights = Record(fails={("c", "Resident"): RuntimeError("first"), ("a", "Offload"): RuntimeError("second")})
    with pytest.raises(UndoError, match=r"failed: first; undoing it failed: second") as caught:
        apply(weights, MOVES, check=weights.check)
    assert caught.value.failed.move.component == "c"


def test_accounts_that_disagree_after_undoing_are_another_error() -> None:
    weights = Record(fails={("b", "Resident"): RuntimeError("no")}, fail_check=2)
    with pytest.raises(UndoError, match="the ledger says"):
        apply(weights, MOVES, check=weights.check)


def test_memory_that_does_not_come_back_is_another_error_with_its_numbers() -> None:
    weights = Record(fails={("c", "Resident"): RuntimeError("no")}, kept={"a": 4096})
    with pytest.raises(UndoError, match=r"memory is not what it was: component a had 0 bytes .* and has \(0, 4096\)"):
        apply(weights, MOVES, check=weights.check)


def test_a_component_that_could_not_undo_its_own_move_is_asked_again() -> None:
    weights = Record(fails={("b", "Resident"): RuntimeError("no"), ("b", "Offload"): RuntimeError("nor back")})
    with pytest.raises(UndoError, match="undoing it failed: nor back"):
        apply(weights, MOVES, check=weights.check)


def test_a_move_that_nobody_can_undo_is_not_undone_in_silence() -> None:
    known = Move(component="a", from_=None, to=ComponentPlacement(name="a", mode="Resident"))
    weights = Record(fails={("b", "Resident"): RuntimeError("no")})
    with pytest.raises(UndoError):
        apply(weights, (known, *MOVES[1:]), check=weights.check)


@pytest.mark.parametrize("fails", [{}, {("c", "Resident"): RuntimeError("no")}], ids=["asked to stop", "a move failed"])
def test_what_interrupts_the_moves_never_interrupts_undoing_them(fails: dict[tuple[str, str], BaseException]) -> None:
    """A signal that comes while moves are undone would otherwise look like an undo that failed."""
    weights = Record(fails=fails)

    def interrupt() -> None:
        if not fails or ("c", "Offload") in weights.history:  # where a move fails: only once undoing has begun
            raise InterruptedError("stop")

    with pytest.raises(ApplyError, match="failed: no" if fails else "failed: stop"):
        apply(weights, MOVES, check=weights.check, interrupt=interrupt)
    assert weights.where() == dict.fromkeys(NAMES, "Offload")
