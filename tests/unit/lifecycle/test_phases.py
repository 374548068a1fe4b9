"""The start-up as a state machine: every path ends, at most one adjustment, and nothing unproven ever serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from stowplan_agent.lifecycle.phases import ENDS, SERVING, TRANSITIONS, Outcome, next_phase
from stowplan_api.residency_placement import Phase

PHASES: tuple[Phase, ...] = get_args(Phase)
Path = tuple[Phase, ...]


def paths(begin: Path = ("Pending",)) -> Iterator[Path]:
    """Every path from the first phase to an end."""
    if begin[-1] in ENDS:
        yield begin
        return
    assert len(begin) <= len(PHASES), f"a path that never ends: {begin}"
    for (phase, _), after in TRANSITIONS.items():
        if phase == begin[-1]:
            yield from paths((*begin, after))


def test_every_path_ends_and_passes_no_phase_twice() -> None:
    for path in paths():
        assert len(set(path)) == len(path)
        assert path[-1] in ENDS


def test_every_phase_of_the_contract_is_reached_and_reaches_an_end() -> None:
    assert {phase for path in paths() for phase in path} == set(PHASES)


def test_at_most_one_adjustment_a_start() -> None:
    for path in paths():
        assert path.count("Solve") <= 1
        assert path.count("Apply") <= 1
        if "Apply" in path:
            assert path.index("Solve") + 1 == path.index("Apply")


@pytest.mark.parametrize("end", sorted(SERVING))
def test_nothing_serves_that_was_not_proven(end: Phase) -> None:
    for path in paths():
        if path[-1] == end:
            proofs = {"Ready": {"Validate", "Revalidate"}, "RolledBack": {"RollBack"}}[end]
            assert path[-2] in proofs
            assert "Probe" in path or "Revalidate" in path


def test_a_stored_placement_is_proven_or_everything_is_measured() -> None:
    for path in paths():
        if "Revalidate" in path:
            after = path[path.index("Revalidate") + 1]
            assert path[path.index("Revalidate") - 1] == "Warm"
            assert after in {"Ready", "Probe", "Failed"}


def test_serving_ends_are_ready_and_rolled_back_only() -> None:
    assert frozenset({"Ready", "RolledBack"}) == SERVING
    assert frozenset({"Failed"}) == ENDS - SERVING


D, K, R, S, F = Outcome.DONE, Outcome.KEEP, Outcome.REUSED, Outcome.STALE, Outcome.FAILED
RECALLED = Outcome.RECALLED
TABLE: dict[Phase, dict[Outcome, Phase]] = {
    "Pending": {D: "Inventory"},
    "Inventory": {D: "Load", F: "Failed"},
    "Load": {D: "Warm", F: "Failed"},
    "Warm": {D: "Probe", R: "Revalidate", F: "Failed"},
    "Revalidate": {D: "Ready", S: "Probe", F: "Failed"},
    "Probe": {D: "WarmAgain", F: "Failed"},
    "WarmAgain": {D: "Solve", F: "Failed"},
    "Solve": {D: "Apply", K: "Validate", F: "Failed"},
    "Apply": {D: "Validate", K: "Validate", F: "RollBack"},
    "Validate": {D: "Ready", F: "RollBack"},
    "RollBack": {D: "RolledBack", F: "Failed"},
    "Ready": {RECALLED: "RollBack"},
    "RolledBack": {},
    "Failed": {},
}


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("phase", PHASES)
def test_what_follows_every_phase_and_outcome(phase: Phase, outcome: Outcome) -> None:
    if outcome in TABLE[phase]:
        assert next_phase(phase, outcome) == TABLE[phase][outcome]
    else:
        with pytest.raises(KeyError):
            next_phase(phase, outcome)


def test_every_phase_but_the_first_can_fail() -> None:
    working = set(PHASES) - ENDS - {"Pending"}
    assert {phase for phase, outcome in TRANSITIONS if outcome is Outcome.FAILED} == working


def test_what_serves_is_left_in_one_way_only_and_to_what_is_proven_again() -> None:
    assert {key: after for key, after in TRANSITIONS.items() if key[0] in ENDS} == {
        ("Ready", Outcome.RECALLED): "RollBack"
    }
