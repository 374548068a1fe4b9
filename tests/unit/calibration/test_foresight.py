"""What a heavier request needs at least: never less than was seen, and grown only where it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.calibration import Extent, Observation, at_least


def seen(component: str | None, entry: str, passes: int, nbytes: int) -> Observation:
    return Observation(component, entry, passes, passes, nbytes, 0.1, {})


REQUEST = (
    seen(None, "prepare", 1, 10),
    seen("text_encoder", "forward", 2, 100),
    seen("vae", "encode", 1, 300),
    seen("transformer", "forward", 8, 200),
    seen(None, "between", 1, 20),
    seen("vae", "decode", 1, 1000),
    seen(None, "finish", 1, 30),
)
SMALL = Extent(area=100, tokens=50)


@pytest.mark.parametrize(
    ("wanted", "constant", "expected"),
    [
        (SMALL, (), [10, 100, 300, 200, 20, 1000, 30]),
        (Extent(250, 125), (), [10, 100, 300, 500, 20, 2500, 30]),
        (Extent(100, 150), (), [10, 100, 300, 600, 20, 1000, 30]),  # causal VAEs decode frame by frame
        (Extent(250, 375), (), [10, 100, 300, 1500, 20, 2500, 30]),
        (Extent(250, 375), ("vae",), [10, 100, 300, 1500, 20, 1000, 30]),  # tile by tile
    ],
)
def test_what_sees_the_picture_grows_with_it(wanted: Extent, constant: tuple[str, ...], expected: list[int]) -> None:
    assert [one.activation_bytes for one in at_least(REQUEST, SMALL, wanted, constant)] == expected


@given(st.integers(1, 10**6), st.integers(1, 10**3))
def test_never_less_than_was_seen(area: int, tokens: int) -> None:
    for one, other in zip(REQUEST, at_least(REQUEST, SMALL, Extent(area, tokens)), strict=True):
        assert other.activation_bytes >= one.activation_bytes
        assert (other.component, other.passes, other.loose_seconds) == (one.component, one.passes, one.loose_seconds)
