"""What a record promises of one request: of each declared shape, and of one that called its components more often."""

from __future__ import annotations

import pytest

from planned_records import RECORD
from stowplan_agent.lifecycle.prediction import as_called, promise, promises
from stowplan_agent.planning import cost, seed_placement

SEED = seed_placement(RECORD.components, ranks=1)
CLIP, STILL = RECORD.workloads
MEASURED = {"denoiser": 4, "vae": 1}


def seconds(calls: dict[str, int]) -> float:
    record = as_called(RECORD, CLIP, calls)
    assert record is not None
    return promise(record, SEED, CLIP).seconds


def test_each_declared_shape_has_its_own_promise_and_their_average_is_the_price() -> None:
    found = promises(RECORD, SEED)
    assert set(found) == {(64, 64, 5), (64, 32, 1)}
    of_clip, of_still = found[64, 64, 5][1].seconds, found[64, 32, 1][1].seconds
    assert of_still < of_clip
    assert cost(RECORD, SEED).seconds == pytest.approx((of_clip + of_still) / 2)
    assert promises(RECORD.model_copy(update={"extrapolated": True}), SEED) == {}


def test_the_calls_that_were_measured_are_the_promise_itself() -> None:
    assert seconds(MEASURED) == promise(RECORD, SEED, CLIP).seconds


def test_more_calls_of_a_component_take_longer_by_its_passes() -> None:
    once, twice, thrice = (seconds(MEASURED | {"denoiser": 4 * times}) for times in (1, 2, 3))
    assert twice - once == pytest.approx(thrice - twice)
    assert twice - once > 4 * (0.01 + 4 * 0.02)  # four more passes: what is loose, and four layers
    assert seconds(MEASURED | {"vae": 2}) - once == pytest.approx(0.1)


def test_calls_do_not_change_what_a_request_peaks_at() -> None:
    record = as_called(RECORD, CLIP, {"denoiser": 8, "vae": 2})
    assert record is not None
    assert promise(record, SEED, CLIP).peak_bytes == promise(RECORD, SEED, CLIP).peak_bytes


@pytest.mark.parametrize(
    "calls", [{}, {"denoiser": 4}, {"denoiser": 4, "vae": 0}, MEASURED | {"upscaler": 1}, {"upscaler": 1}]
)
def test_nothing_is_said_of_a_component_that_was_never_measured_nor_of_one_that_was_left_out(
    calls: dict[str, int],
) -> None:
    assert as_called(RECORD, CLIP, calls) is None
