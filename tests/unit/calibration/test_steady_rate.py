"""What a copy takes among others: the fill of the staging ring and its opening are no part of it, as in a long pass."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.calibration.link import LARGEST, measure_link
from stowplan_agent.calibration.steady_rate import LEAST_ROW, LONGEST_ROW, ROW_SECONDS, ROWS, row_length, steady
from unit.calibration.staging_model import RingModel

LAYER = 670 << 20
PASS = 40


def rate_of(ends: list[float], nbytes: int) -> float:
    return len(ends) * nbytes / ends[-1]


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("read_seconds", [2e-3, 3.5e-3, 4.5e-3, 8e-3])
def test_a_row_gives_the_rate_of_layers_in_a_pass(read_seconds: float, jitter: float) -> None:
    model = RingModel(read_seconds=read_seconds, jitter=jitter)
    model.ends(1, LARGEST)
    length = row_length(model.ends(1, LARGEST)[-1])
    measured = LARGEST / median(steady(model.ends(length, LARGEST)) for _ in range(ROWS))
    assert measured == pytest.approx(rate_of(model.ends(PASS, LAYER), LAYER), rel=0.03)


def test_a_single_copy_is_far_slower_for_it_pays_for_the_fill() -> None:
    model = RingModel(opening=0.0)
    assert rate_of(model.ends(1, 256 << 20), 256 << 20) < 0.7 * rate_of(model.ends(PASS, LAYER), LAYER)


@given(st.integers(2, 64), st.floats(1e-4, 1.0), st.floats(0.0, 5.0))
def test_what_the_first_copies_wait_for_does_not_count(length: int, each: float, fill: float) -> None:
    assert steady([fill + each * (index + 1) for index in range(length)]) == pytest.approx(each, rel=1e-6)


@given(st.floats(1e-7, 1e3))
def test_a_row_is_short_on_any_link(alone: float) -> None:
    length = row_length(alone)
    assert LEAST_ROW <= length <= LONGEST_ROW
    assert length * alone <= ROW_SECONDS + alone or length == LEAST_ROW


class FillingCard(EmulatedAccelerator):
    """Pageable copies through a ring: the first of all opens it, and one that finds it empty fills it."""

    def __init__(self, card: EmulatedCard, *, opening: float, fill: float) -> None:
        super().__init__(card)
        self.copied: list[int] = []
        self._opening, self._fill, self._busy_until = opening, fill, 0.0

    def copy(self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: Any) -> Any:
        self.copied.append(source.nbytes)
        if not pinned and self._busy_until <= self.clock.compute:
            self.clock.copy(self._opening + self._fill, self.clock.compute)
            self._opening = 0.0
        event = super().copy(destination, source, pinned=pinned, after=after)
        self._busy_until = event.moment
        return event


@pytest.mark.parametrize(("opening", "fill"), [(0.0, 0.0), (0.2, 0.004), (5.0, 0.1)])
def test_opening_and_filling_the_ring_leave_the_link_as_it_is(opening: float, fill: float) -> None:
    card = EmulatedCard(capacity_bytes=64 << 20, pinned_rate=5.5e10, pageable_rate=5.2e10)
    accelerator = FillingCard(card, opening=opening, fill=fill)
    link = measure_link(accelerator, budget_bytes=8 << 20)
    assert link.pageable_bytes_per_second == pytest.approx(card.pageable_rate, rel=1e-6)
    assert link.pinned_bytes_per_second == pytest.approx(card.pinned_rate, rel=1e-6)
    assert max(accelerator.copied) == 4 << 20
    accelerator.close()


def test_a_slow_link_is_not_asked_for_long() -> None:
    accelerator = FillingCard(EmulatedCard(capacity_bytes=64 << 20, pageable_rate=1e7), opening=0.0, fill=0.0)
    measure_link(accelerator, budget_bytes=8 << 20)  # 0.4 s a copy
    assert accelerator.copied.count(4 << 20) < 24
    accelerator.close()
