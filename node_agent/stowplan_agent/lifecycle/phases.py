"""The start-up as one explicit state machine: phase and outcome give the next phase. Pure.

A start makes at most one adjustment: from Solve or from a failed validation no path leads back to Solve. From every
phase something leads to an end, and the only ends that serve are Ready and RolledBack, which lie behind Validate or
RollBack.
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
    FAILED = "Failed"


TRANSITIONS: Final[Mapping[tuple[Phase, Outcome], Phase]] = {
    ("Pending", Outcome.DONE): "Inventory",
    ("Inventory", Outcome.DONE): "Load",
    ("Inventory", Outcome.FAILED): "Failed",
    ("Load", Outcome.DONE): "Warm",
    ("Load", Outcome.FAILED): "Failed",
    ("Warm", Outcome.DONE): "Probe",
    ("Warm", Outcome.FAILED): "Failed",
    ("Probe", Outcome.DONE): "WarmAgain",
    ("Probe", Outcome.FAILED): "Failed",
    ("WarmAgain", Outcome.DONE): "Solve",
    ("WarmAgain", Outcome.FAILED): "Failed",
    ("Solve", Outcome.DONE): "Apply",
    ("Solve", Outcome.KEEP): "Validate",
    ("Solve", Outcome.FAILED): "Failed",
    ("Apply", Outcome.DONE): "Validate",
    ("Apply", Outcome.FAILED): "RollBack",
    ("Validate", Outcome.DONE): "Ready",
    ("Validate", Outcome.FAILED): "RollBack",
    ("RollBack", Outcome.DONE): "RolledBack",
    ("RollBack", Outcome.FAILED): "Failed",
}
ENDS: Final[frozenset[Phase]] = frozenset({"Ready", "RolledBack", "Failed"})
SERVING: Final[frozenset[Phase]] = frozenset({"Ready", "RolledBack"})


def next_phase(phase: Phase, outcome: Outcome) -> Phase:
    """The phase after one that ended so. Raises KeyError for an end, and for an outcome the phase cannot have."""
    return TRANSITIONS[phase, outcome]
