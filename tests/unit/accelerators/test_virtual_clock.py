"""The virtual clock against a simulation in small steps, and small tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.accelerators.virtual_clock import VirtualClock

TICK = 1 / 256
"""Seconds of a small step; all durations are multiples of it."""
seconds = st.integers(0, 512).map(lambda ticks: ticks * TICK)
step = st.one_of(
    st.tuples(st.just("compute"), seconds),
    st.tuples(st.just("copy"), seconds),
    st.tuples(st.just("wait"), st.integers(0, 8)),
)


class SmallSteps:
    """The same device, moved on tick by tick: in each tick compute works at full or at contended speed."""

    def __init__(self, contention: float) -> None:
        self.now = 0.0
        self.contention = contention
        self.link_free = 0.0
        self.copies: list[tuple[float, float]] = []

    def compute(self, work: float) -> None:
        while work > 1e-9:
            busy = any(start <= self.now + TICK / 2 < end for start, end in self.copies)
            work -= TICK / self.contention if busy else TICK
            self.now += TICK

    def copy(self, duration: float) -> float:
        start = max(self.link_free, self.now)
        self.link_free = start + duration
        self.copies.append((start, self.link_free))
        return self.link_free

    def wait(self, moment: float) -> None:
        self.now = max(self.now, moment)


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=25), st.sampled_from([1.0, 1.05, 1.5, 2.0]))
def test_equals_a_simulation_in_small_steps(program: list[tuple[str, float]], contention: float) -> None:
    clock, steps = VirtualClock(contention), SmallSteps(contention)
    ends: list[tuple[float, float]] = []
    computed = 0
    for kind, value in program:
        if kind == "compute":
            clock.advance(value)
            steps.compute(value)
            computed += 1
        elif kind == "copy":
            ends.append((clock.copy(value, clock.compute), steps.copy(value)))
        elif ends:
            ours, theirs = ends[int(value) % len(ends)]
            clock.wait(ours)
            steps.wait(theirs)
    # Each stretch of compute ends within a tick or two of the stepped one.
    assert clock.compute == pytest.approx(steps.now, abs=TICK * (2 * computed + 1))


def test_compute_slows_exactly_while_a_copy_runs() -> None:
    clock = VirtualClock(2.0)
    assert clock.copy(1.0, 0.5) == 1.5
    clock.advance(2.0)  # 0.5 alone, 0.5 of work in the second beside the copy, then 1.0 alone
    assert clock.compute == pytest.approx(2.5)


def test_copies_run_one_after_the_other_and_not_before_their_event() -> None:
    clock = VirtualClock(1.0)
    assert [clock.copy(1.0, 0.0), clock.copy(1.0, 0.0), clock.copy(1.0, 5.0)] == [1.0, 2.0, 6.0]


def test_waiting_counts_only_time_that_compute_stood_still() -> None:
    clock = VirtualClock(1.0)
    clock.wait(clock.copy(2.0, 0.0))
    clock.wait(1.0)
    assert (clock.compute, clock.waited) == (2.0, 2.0)


def test_both_streams_come_to_rest_without_compute_having_stood_still() -> None:
    clock = VirtualClock(contention=1.0)
    end = clock.copy(2.0, not_before=0.0)
    clock.settle()
    assert (clock.compute, clock.waited) == (end, 0.0)
    clock.advance(1.0)
    clock.settle()
    assert clock.compute == end + 1.0
