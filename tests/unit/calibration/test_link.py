"""Measuring the link: on an emulated card the answer is written on the card."""

from __future__ import annotations

import pytest

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.calibration.contention import slowdown
from stowplan_agent.calibration.link import measure_link

CARDS = [
    EmulatedCard(capacity_bytes=64 << 20),
    EmulatedCard(capacity_bytes=64 << 20, pinned_rate=5.5e10, pageable_rate=6.6e9, latency=1e-5, contention=1.2),
    EmulatedCard(capacity_bytes=2 << 20, pinned_rate=1e9, pageable_rate=1e9, latency=0.0, contention=1.0),
]


@pytest.mark.parametrize("card", CARDS)
def test_the_measured_link_is_the_stated_one(card: EmulatedCard) -> None:
    accelerator = EmulatedAccelerator(card)
    link = measure_link(accelerator, budget_bytes=card.capacity_bytes // 8)
    assert link.pinned_bytes_per_second == pytest.approx(card.pinned_rate, rel=1e-6)
    assert link.pageable_bytes_per_second == pytest.approx(card.pageable_rate, rel=1e-6)
    assert link.latency_seconds == pytest.approx(card.latency, abs=1e-9)
    assert link.contention == pytest.approx(card.contention, rel=1e-3)
    assert accelerator.counters().allocated == 0
    accelerator.close()


def test_at_most_half_the_budget_is_taken_and_all_of_it_given_back() -> None:
    accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=64 << 20))
    measure_link(accelerator, budget_bytes=4 << 20)
    assert accelerator.counters().weights == 0
    assert accelerator.counters().peak < (2 << 20) + (1 << 16)
    accelerator.close()


def test_a_driver_that_refuses_pins_leaves_the_pageable_rate() -> None:
    accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=64 << 20))
    accelerator.refused_pins = True
    link = measure_link(accelerator, budget_bytes=4 << 20)
    assert link.pinned_bytes_per_second == link.pageable_bytes_per_second == pytest.approx(1e8)
    accelerator.close()


@pytest.mark.parametrize(
    ("alone", "beside", "copying", "factor"),
    [
        (1.0, 1.2, 9.0, 1.2),  # the copy outlasts the work: all of it was slowed
        (1.0, 1.1, 0.6, 1.2),  # 0.6 s at 1/1.2 of the speed did 0.5 s of work, the rest ran at full speed
        (1.0, 1.0, 0.5, 1.0),
        (1.0, 0.9, 0.5, 1.0),  # noise never makes a copy speed compute up
        (1.0, 2.5, 0.5, 1.0),  # something else was slow: the copy cannot have done it
    ],
)
def test_contention_counts_only_while_the_copy_runs(alone: float, beside: float, copying: float, factor: float) -> None:
    assert slowdown(alone, beside, copying) == pytest.approx(factor)
