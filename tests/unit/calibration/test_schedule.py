"""From a short request to the declared one: intervals in order, passes from the calls, seconds of a pass as watched."""

from __future__ import annotations

from stowplan_agent.calibration import Observation, at_target

TEXT = Observation("text", "forward", 2, 2, 500, 0.5, {})
FIRST = Observation("first", "forward", 2, 2, 1000, 0.1, {"blocks": (0.2, 0.3)})
SECOND = Observation("second", "forward", 4, 4, 1100, 0.1, {"blocks": (0.2, 0.4)})
VAE = Observation("vae", "decode", 1, 1, 4000, 2.0, {})


def gap(entry: str, seconds: float) -> Observation:
    return Observation(None, entry, 1, 1, round(seconds * 100), seconds, {})


WATCHED = (gap("prepare", 1), TEXT, gap("between", 2), FIRST, gap("between", 3), SECOND, gap("between", 4), VAE)
WATCHED = (*WATCHED, gap("finish", 5))
TWINS = {"first": ["second"], "second": ["first"], "text": [], "vae": []}


def calls(first: int, second: int) -> list[tuple[str, str]]:
    steps = [("first", "forward")] * first + [("second", "forward")] * second
    return [("text", "forward")] * 2 + steps + [("vae", "decode")]


def test_more_steps_make_more_passes_and_nothing_else() -> None:
    found = at_target(WATCHED, calls(26, 54), TWINS)
    assert found is not None
    assert [one.component for one in found] == [one.component for one in WATCHED]
    assert [one.passes for one in found if one.component] == [2, 26, 54, 1]
    assert [one.loose_seconds for one in found] == [one.loose_seconds for one in WATCHED]
    assert [one.activation_bytes for one in found] == [one.activation_bytes for one in WATCHED]


def test_an_expert_that_never_ran_is_its_twin_between_like_neighbours() -> None:
    watched = (*WATCHED[:4], gap("between", 4), VAE, gap("finish", 5))
    found = at_target(watched, calls(3, 7), TWINS)
    assert found is not None
    second = found[5]
    assert (second.component, second.passes, second.layer_seconds) == ("second", 7, FIRST.layer_seconds)
    assert [one.loose_seconds for one in found if one.component is None] == [1, 2, 2, 4, 5]


def test_an_expert_that_does_not_run_at_the_declared_steps_is_left_out() -> None:
    found = at_target(WATCHED, calls(0, 8), TWINS)
    assert found is not None
    assert [one.component for one in found] == [None, "text", None, "second", None, "vae", None]


def test_a_call_of_several_passes_keeps_their_number() -> None:
    watched = (gap("prepare", 1), Observation("text", "generate", 1, 12, 5, 0.1, {"layers": (0.1,)}), gap("finish", 5))
    found = at_target(watched, [("text", "generate")] * 3, {"text": []})
    assert found is not None
    assert (found[1].calls, found[1].passes) == (3, 36)


def test_a_component_that_nobody_stands_for_has_no_answer() -> None:
    assert at_target(WATCHED, [*calls(1, 1), ("upscaler", "forward")], TWINS | {"upscaler": []}) is None
