"""Is a placement proven? A table over what one validation request measured."""

from __future__ import annotations

import pytest

from stowplan_agent.transaction import Criteria, Measured, Reference, judge
from stowplan_api.contract import PlacementReason

GIB = 1 << 30
REFERENCE = Reference(digest="a" * 64, seconds=10.0)
CRITERIA = Criteria(capacity_bytes=24 * GIB, reserve_bytes=2 * GIB, max_slowdown=0.05)


def measured(
    digest: str = "a" * 64, seconds: float | None = 9.0, peak: int = 20 * GIB, reserved: int = 20 * GIB
) -> Measured:
    return Measured(digest, seconds, peak, reserved)


@pytest.mark.parametrize(
    ("outcome", "reasons"),
    [
        (measured(), []),
        (measured(seconds=10.5), []),
        (measured(seconds=10.500001), [PlacementReason.TOO_SLOW]),
        (measured(seconds=None), []),
        (measured(digest="b" * 64), [PlacementReason.OUTPUT_DIFFERS]),
        (measured(peak=22 * GIB), []),
        (measured(peak=22 * GIB + 1), [PlacementReason.PEAK_OVER_BUDGET]),
        # What the allocator keeps for later may take the reserve too.
        (measured(reserved=24 * GIB), []),
        # CASES T6: a lower allocated peak does not excuse a higher reserved one.
        (measured(peak=1, reserved=24 * GIB + 1), [PlacementReason.PEAK_OVER_BUDGET]),
        (
            measured("b" * 64, 99.0, 23 * GIB, 25 * GIB),
            [
                PlacementReason.OUTPUT_DIFFERS,
                PlacementReason.PEAK_OVER_BUDGET,
                PlacementReason.PEAK_OVER_BUDGET,
                PlacementReason.TOO_SLOW,
            ],
        ),
    ],
)
def test_what_fails_is_found_the_most_serious_first(outcome: Measured, reasons: list[PlacementReason]) -> None:
    assert [finding.reason for finding in judge(REFERENCE, outcome, CRITERIA)] == reasons


def test_fifty_milliseconds_are_always_allowed() -> None:
    short = Reference(digest="a" * 64, seconds=0.1)
    assert judge(short, measured(seconds=0.1499), CRITERIA) == ()
    assert [finding.reason for finding in judge(short, measured(seconds=0.1501), CRITERIA)] == ["TooSlow"]


def test_an_output_that_is_not_reproducible_is_not_compared() -> None:
    loose = Criteria(capacity_bytes=24 * GIB, reserve_bytes=2 * GIB, reproducible=False)
    assert judge(REFERENCE, measured(digest="b" * 64), loose) == ()


def test_findings_carry_their_numbers() -> None:
    (allocated, reserved) = judge(REFERENCE, measured(peak=23 * GIB, reserved=26 * GIB), CRITERIA)
    assert allocated.message == (
        "the allocated peak of 23 GiB is 1 GiB above the budget of 22 GiB (24 GiB less a reserve of 2 GiB)"
    )
    assert reserved.message == "the reserved peak of 26 GiB is 2 GiB above the 24 GiB that this process may use"
    (slow,) = judge(REFERENCE, measured(seconds=12.0), CRITERIA)
    assert "12.000 s" in slow.message
    assert "10.000 s" in slow.message
    assert "10.500 s" in slow.message


@pytest.mark.parametrize(
    ("spread", "distance", "accepted"),
    [(None, None, False), (0.03, 0.03, True), (0.03, 0.031, False), (0.03, None, False), (None, 0.0, False)],
)
def test_the_references_own_spread_is_the_tolerance(
    spread: float | None, distance: float | None, accepted: bool
) -> None:
    loose = Reference(digest="a" * 64, seconds=10.0, spread=spread)
    other = Measured("b" * 64, 9.0, GIB, GIB, distance)
    assert (judge(loose, other, CRITERIA) == ()) is accepted
    assert other.repeats(loose) is accepted


def test_an_output_beyond_the_spread_is_told_with_both_numbers() -> None:
    loose = Reference(digest="a" * 64, seconds=10.0, spread=0.01)
    (differs,) = judge(loose, Measured("b" * 64, 9.0, GIB, GIB, 0.25), CRITERIA)
    assert differs.message.endswith("by 0.25, and two runs of the reference itself by 0.01")
