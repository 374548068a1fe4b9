"""RUNTIME 10: injected slow copies, slow compute, random schedules and random placements never change the output."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest

from engine_fuzz import fuzz, schedule
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard


def dawdle(generator: random.Random, most: float) -> None:
    """The injected slowness itself, not synchronisation: a third of the time, up to ``most`` seconds."""
    if generator.random() < 0.3:
        threading.Event().wait(generator.random() * most)


SPEEDS = {"slow copies": (5e-4, 0.0), "slow compute": (0.0, 2e-3), "both": (3e-4, 1e-3), "neither": (0.0, 0.0)}


@pytest.mark.parametrize("speeds", SPEEDS)
def test_two_hundred_random_passes_are_bit_equal_and_memory_is_flat(speeds: str) -> None:
    copies, compute = SPEEDS[speeds]
    delay = partial(dawdle, random.Random(1), copies) if copies else None
    card = EmulatedAccelerator(EmulatedCard(1 << 30), delay=delay)
    slow = partial(dawdle, most=compute) if compute else lambda generator: None
    tally = fuzz(card, seed=list(SPEEDS).index(speeds), slow_compute=slow)
    card.close()
    # Otherwise the run has proved nothing.
    assert tally.passes >= 200 and tally.placements >= 60 and tally.interrupted >= 5 and tally.commits >= 5
    assert tally.streamed_bytes > 200 * (1 << 20)


def test_schedules_are_straight_at_times_and_skip_repeat_and_run_backwards_at_others() -> None:
    generator = random.Random(0)
    drawn = [[index for name, index in schedule(generator, 5, 4) if name == "first"] for _ in range(200)]
    assert any(order == [0, 1, 2, 3, 4] for order in drawn)
    assert any(not order for order in drawn)
    assert any(len(set(order)) < len(order) for order in drawn)
    assert any(order != sorted(order) for order in drawn)
