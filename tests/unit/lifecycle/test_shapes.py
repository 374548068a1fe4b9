"""Bounded and lighter shapes: always valid for the model, never more work, and lightening always ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.inventory.frames import FrameContract
from stowplan_agent.lifecycle.shapes import area, bounded, describe, lighter, work
from stowplan_api.diffusion_deployment import Shape


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shape, FrameContract]:
    """A contract and a shape that is valid for it."""
    side = draw(st.sampled_from([8, 16, 32, 64]))
    temporal = draw(st.sampled_from([None, 1, 4, 8]))
    frames = 1 if temporal is None else temporal * draw(st.integers(0, 40)) + 1
    shape = Shape(
        name="shape",
        width=side * draw(st.integers(2, 16384 // side)),
        height=side * draw(st.integers(2, 16384 // side)),
        frames=frames,
        steps=draw(st.integers(1, 100)),
    )
    return shape, FrameContract(side, temporal)


def valid(shape: Shape, contract: FrameContract) -> bool:
    return (
        shape.width >= contract.side
        and shape.width % contract.side == 0
        and shape.height >= contract.side
        and shape.height % contract.side == 0
        and shape.frames == contract.frames_at_most(shape.frames)
    )


@given(cases())
def test_lightening_gives_valid_shapes_of_strictly_less_work_until_none_is_left(
    case: tuple[Shape, FrameContract],
) -> None:
    shape, contract = case
    tried = 0
    while (smaller := lighter(shape, contract)) is not None:
        assert valid(smaller, contract)
        assert work(smaller) < work(shape)
        assert smaller.width <= shape.width
        assert smaller.height <= shape.height
        assert (smaller.steps, smaller.name) == (shape.steps, shape.name)
        # Frames first: area is given up only where no frame is left to give up.
        assert smaller.frames < shape.frames or shape.frames == 1 or contract.temporal is None
        shape, tried = smaller, tried + 1
    assert tried <= 64
    assert shape.frames == 1


@given(cases())
def test_bounded_is_valid_no_larger_and_within_the_bounds(case: tuple[Shape, FrameContract]) -> None:
    shape, contract = case
    small = bounded(shape, contract)
    assert valid(small, contract)
    assert work(small) <= work(shape)
    assert small.steps == min(shape.steps, 2)
    assert small.frames <= min(shape.frames, 17)
    # One side may already be the smallest that the model takes; then the other alone can shrink.
    if contract.side not in (small.width, small.height):
        assert area(small) <= (832 * 480 if shape.frames > 1 else 768 * 768)


def test_a_small_shape_is_its_own_bound() -> None:
    shape = Shape(name="small", width=64, height=64, frames=5, steps=2)
    assert bounded(shape, FrameContract(16, 4)) == shape


def test_the_bound_of_a_large_video_keeps_its_aspect() -> None:
    small = bounded(Shape(name="hd", width=1280, height=720, frames=81, steps=40), FrameContract(16, 4))
    assert (small.width, small.height, small.frames, small.steps) == (832, 464, 17, 2)


def test_shapes_for_people() -> None:
    assert describe(Shape(name="v", width=832, height=480, frames=81, steps=40)) == "832x480x81, 40 steps"
    assert describe(Shape(name="i", width=1024, height=768, steps=28)) == "1024x768, 28 steps"
