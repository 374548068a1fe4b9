"""What may run: decided from the record, with numbers, and the same for every request of one size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planned_records import RECORD
from stowplan_agent.inventory.frames import FrameContract
from stowplan_agent.lifecycle.admission import refusal
from stowplan_agent.lifecycle.prediction import alone, promise, promises
from stowplan_agent.planning import cost, solve, with_device_memory
from stowplan_api.placement import Placement

VIDEO = FrameContract(side=16, temporal=4)
CLIP_ALONE = alone(RECORD, RECORD.workloads[0])
SIDES = st.integers(1, 16).map(lambda count: count * 16)


def planned() -> Placement:
    placement = solve(RECORD).placement
    assert placement is not None
    return placement


@pytest.mark.parametrize(
    "size", [(64, 64, 5), (64, 32, 1), (64, 64, 1), (32, 128, 5), (16, 16, 5), (64, 32, 9), (16, 16, 77)]
)
def test_declared_shapes_and_what_is_less_may_run(size: tuple[int, int, int]) -> None:
    assert refusal(RECORD, planned(), VIDEO, *size) is None


def test_more_than_the_largest_declared_shape_is_refused_with_both_sizes() -> None:
    reason = refusal(RECORD, planned(), VIDEO, 128, 64, 5)
    assert reason == (
        "128x64x5 is 40960 pixels over all frames, and the largest declared shape, clip (64x64x5), has 20480; "
        "ask for less, or declare the shape in spec.workload.shapes"
    )


def test_larger_frames_are_refused_where_the_decoder_would_not_have_room() -> None:
    """clip decodes in 8 MiB; frames four times as large take 32, and the card has 32 for everything."""
    reason = refusal(CLIP_ALONE, planned(), VIDEO, 128, 128, 1)
    assert reason is not None
    assert reason.startswith("128x128x1 cannot fit: interval 1 (vae decode) on rank 0 needs ")
    assert "bytes more than the 32 MiB there are" in reason
    assert "declare the shape in spec.workload.shapes" in reason


def test_larger_frames_may_run_where_there_is_room() -> None:
    roomy = with_device_memory(CLIP_ALONE, 128 << 20)
    assert refusal(roomy, planned(), VIDEO, 128, 128, 1) is None


def test_the_declared_shape_that_is_most_like_it_decides() -> None:
    """By still, which decodes one frame in 2 MiB, frames eight times as large take 16."""
    assert refusal(RECORD, planned(), VIDEO, 128, 128, 1) is None


@settings(deadline=None)
@given(SIDES, SIDES, st.integers(0, 4).map(lambda count: 4 * count + 1))
def test_whoever_asks_for_less_is_not_refused(width: int, height: int, frames: int) -> None:
    placement = planned()
    if refusal(RECORD, placement, VIDEO, width, height, frames) is None:
        assert refusal(RECORD, placement, VIDEO, max(16, width // 2), height, frames) is None
        assert refusal(RECORD, placement, VIDEO, width, height, 1) is None


def test_each_promise_is_of_one_shape_and_their_average_is_the_plan() -> None:
    placement = planned()
    found = promises(RECORD, placement)
    assert set(found) == {(64, 64, 5), (64, 32, 1)}
    clip, still = found[64, 64, 5][1], found[64, 32, 1][1]
    price = cost(RECORD, placement)
    assert price.seconds == pytest.approx((clip.seconds + still.seconds) / 2)
    assert clip.peak_bytes == max(max(ranks) for ranks in price.device_bytes) > still.peak_bytes


def test_nothing_is_promised_of_what_was_not_measured() -> None:
    assert promises(RECORD.model_copy(update={"extrapolated": True}), planned()) == {}


def test_a_workload_alone_costs_what_it_costs_among_others() -> None:
    placement = planned()
    for workload in RECORD.workloads:
        only = cost(alone(RECORD, workload), placement)
        assert only.seconds == pytest.approx(cost(RECORD, placement).workload_seconds[workload.name])
        assert promise(RECORD, placement, workload).seconds == only.seconds
