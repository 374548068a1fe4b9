"""The start-up as one explicit state machine: phase and outcome give the next phase. Pure.

A start makes at most one adjustment: from Solve or from a failed validation no path leads back to Solve. From every
phase something leads to an end, and the only ends that serve are Ready and RolledBack, which lie behind Validate,
Revalidate or RollBack. A start that reuses a stored placement goes from Warm to Revalidate; whatever is wrong with it
leads on to Probe, as if it had never been there. Ready is left in one way only: recalled, to RollBack.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from stowplan_api.residency_placement import Phase


class Outcome(StrEnum):
    """How a phase ended."""

    DONE = "Done"
    KEEP = "Keep"
    """Nothing is to be moved: prove what is in force."""
    REUSED = "Reused"
    """Everything lies where a stored placement has it: prove that, and measure nothing."""
    STALE = "Stale"
    """The stored placement does not hold here; everything is in the seed placement again."""
    FAILED = "Failed"
    RECALLED = "Recalled"
    """What serves is not to serve any more: the kill switch was thrown."""


TRANSITIONS: Final[Mapping[tuple[Phase, Outcome], Phase]] = {
    ("Pending", Outcome.DONE): "Inventory",
    ("Inventory", Outcome.DONE): "Load",
    ("Inventory", Outcome.FAILED): "Failed",
    ("Load", Outcome.DONE): "Warm",
    ("Load", Outcome.FAILED): "Failed",
    ("Warm", Outcome.DONE): "Probe",
    ("Warm", Outcome.REUSED): "Revalidate",
    ("Warm", Outcome.FAILED): "Failed",
    ("Revalidate", Outcome.DONE): "Ready",
    ("Revalidate", Outcome.STALE): "Probe",
    ("Revalidate", Outcome.FAILED): "Failed",
    ("Probe", Outcome.DONE): "WarmAgain",
    ("Probe", Outcome.FAILED): "Failed",
    ("WarmAgain", Outcome.DONE): "Solve",
    ("WarmAgain", Outcome.FAILED): "Failed",
    ("Solve", Outcome.DONE): "Apply",
    ("Solve", Outcome.KEEP): "Validate",
    ("Solve", Outcome.FAILED): "Failed",
    ("Apply", Outcome.DONE): "Validate",
    ("Apply", Outcome.KEEP): "Validate",
    ("Apply", Outcome.FAILED): "RollBack",
    ("Validate", Outcome.DONE): "Ready",
    ("Validate", Outcome.FAILED): "RollBack",
    ("Ready", Outcome.RECALLED): "RollBack",
    ("RollBack", Outcome.DONE): "RolledBack",
    ("RollBack", Outcome.FAILED): "Failed",
}
ENDS: Final[frozenset[Phase]] = frozenset({"Ready", "RolledBack", "Failed"})
SERVING: Final[frozenset[Phase]] = frozenset({"Ready", "RolledBack"})


def next_phase(phase: Phase, outcome: Outcome) -> Phase:
    """The phase after one that ended so. Raises KeyError for an outcome that the phase cannot have."""
    return TRANSITIONS[phase, outcome]
