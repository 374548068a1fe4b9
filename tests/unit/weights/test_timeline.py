"""What the expected request says at each call: when an interval ends, passes left, and what comes next."""

from __future__ import annotations

import pytest

from stowplan_agent.weights.timeline import Stretch, Timeline

REQUEST = (
    Stretch("encoder", 2, 2),
    Stretch(None, 1, 1),
    Stretch("denoiser", 3, 6),
    Stretch("skipped", 0, 0),
    Stretch("vae", 1, 1),
)


def walk(stretches: tuple[Stretch, ...], calls: str) -> list[tuple[int | None, bool]]:
    """For each call (first letters): passes left when it began, and whether it was the last of its stretch."""
    names = {"e": "encoder", "d": "denoiser", "v": "vae", "x": "other"}
    timeline = Timeline(stretches)
    timeline.restart()
    heard = []
    for letter in calls:
        timeline.enter(names[letter])
        heard.append((timeline.passes(), timeline.leave(names[letter])))
    return heard


LOST = (None, False)


@pytest.mark.parametrize(
    ("stretches", "calls", "heard"),
    [
        (REQUEST, "eedddv", [(2, False), (1, True), (6, False), (4, False), (2, True), (1, True)]),
        ((), "ed", [LOST, LOST]),
        (REQUEST, "eeed", [(2, False), (1, True), LOST, LOST]),  # one call more than expected: nothing is known
        (REQUEST, "edddv", [(2, False), (6, False), (4, False), (2, True), (1, True)]),  # fewer: it moves on
        (REQUEST, "xed", [LOST, LOST, LOST]),
        (REQUEST, "v", [(1, True)]),
        ((Stretch("vae", 1, 1), Stretch("vae", 2, 2)), "vvv", [(1, True), (2, False), (1, True)]),
        (
            (Stretch("vae", 1, 1), Stretch(None, 1, 1), Stretch("vae", 2, 2), Stretch(None, 1, 1)),
            "vvvv",
            [(1, True), (2, False), (1, True), LOST],
        ),
        ((Stretch("denoiser", 2, 5),), "dd", [(5, False), (3, True)]),  # rounded up: a copy too many, not too few
        (
            (Stretch("denoiser", 1, 1), Stretch("vae", 1, 1), Stretch("denoiser", 1, 1)),
            "dvd",
            [(1, True), (1, True), (1, True)],
        ),
        ((Stretch("denoiser", 1, 1), Stretch("vae", 1, 1), Stretch("denoiser", 1, 1)), "ddv", [(1, True), LOST, LOST]),
    ],
)
def test_calls_along_and_beside_the_expected_request(
    stretches: tuple[Stretch, ...], calls: str, heard: list[tuple[int | None, bool]]
) -> None:
    assert walk(stretches, calls) == heard


def test_what_comes_next_is_the_next_interval_even_if_it_is_none() -> None:
    timeline = Timeline(REQUEST)
    timeline.restart()
    assert timeline.coming(ended=False) == "encoder"
    timeline.enter("encoder")
    assert timeline.coming(ended=False) is None  # between components nothing is prefetched two intervals ahead
    assert timeline.coming(ended=True) == "denoiser"
    timeline.enter("denoiser")
    assert timeline.coming(ended=False) == "vae"
    timeline.enter("vae")
    assert timeline.coming(ended=True) is None


def test_a_new_request_starts_over() -> None:
    timeline = Timeline(REQUEST)
    timeline.restart()
    timeline.enter("vae")
    timeline.restart()
    timeline.enter("encoder")
    assert timeline.passes() == 2
