"""What clients may ask, as tables: defaults are filled in, nothing is rounded, each refusal is one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.serving.bodies import ServingDefaults, image_request, video_request
from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.fields import ImageBody, VideoBody
from stowplan_agent.serving.payload import checked
from stowplan_agent.serving.requests import GenerationRequest

VIDEO = ServingDefaults(
    model="wan", kind="video", width=832, height=480, frames=81, steps=40, guidance=5.0, fps=16, max_frames=121
)
IMAGE = ServingDefaults(model="flux", kind="image", width=1024, height=768, steps=28)


def video(**body: Any) -> GenerationRequest:
    return video_request(checked(VideoBody, {"prompt": "a cat"} | body), VIDEO, lambda: 7)


def image(**body: Any) -> GenerationRequest:
    return image_request(checked(ImageBody, {"prompt": "a cat"} | body), IMAGE, lambda: 7)


def test_a_prompt_alone_takes_every_default() -> None:
    assert video() == GenerationRequest("video", "a cat", None, 832, 480, 81, 40, 7, 5.0)
    assert image() == GenerationRequest("image", "a cat", None, 1024, 768, 1, 28, 7, None)


def test_everything_that_is_said_is_taken() -> None:
    wanted = video(size="640x352", frames=17, steps=3, seed=0, negative_prompt="dogs", guidance=0, model="wan")
    assert wanted == GenerationRequest("video", "a cat", "dogs", 640, 352, 17, 3, 0, 0.0)
    assert image(n=3, user="u", response_format="b64_json", size="auto", safety_identifier="s").count == 3


def test_null_stands_for_an_absent_field() -> None:
    assert video(**dict.fromkeys(set(VideoBody.model_fields) - {"prompt"})) == video()
    assert image(**dict.fromkeys(set(ImageBody.model_fields) - {"prompt"})) == image()


@pytest.mark.parametrize(
    "spelt",
    [
        {"quality": "auto"}, {"quality": "standard"}, {"background": "auto"}, {"background": "opaque"},
        {"moderation": "auto"}, {"moderation": "low"}, {"output_compression": 100}, {"partial_images": 0},
        {"style": "vivid"}, {"output_format": "png"}, {"response_format": "b64_json"}, {"n": 1}, {"size": "auto"},
        {"stream": False}, {"user": "u"},
    ],
)  # fmt: skip
def test_a_default_of_openais_that_is_spelt_out_changes_nothing(spelt: dict[str, Any]) -> None:
    assert image(**spelt) == image()


@pytest.mark.parametrize(
    ("field", "value", "way_out"),
    [
        ("quality", "hd", "'auto' or 'standard'; steps says how much work an image is"),
        ("background", "transparent", "cut the background out afterwards"),
        ("moderation", "strict", "nothing is moderated here; leave it out"),
        ("output_compression", 50, "PNG loses nothing"),
        ("output_format", "webp", "'png'; images are PNG; convert them afterwards"),
        ("partial_images", 2, "with stream the steps are told"),
        ("style", "natural", "say it in the prompt"),
    ],
)
def test_a_wish_that_is_not_met_is_refused_with_the_way_out(field: str, value: Any, way_out: str) -> None:
    with pytest.raises(ApiError) as caught:
        image(**{field: value})
    assert (caught.value.status, caught.value.param) == (400, field)
    assert caught.value.message.startswith(f"{field} is {value!r}: ")
    assert caught.value.message.endswith(way_out) or way_out in caught.value.message


@pytest.mark.parametrize("reference", ["file-1", {"image_url": "x"}, []])
def test_a_video_that_begins_with_an_image_is_refused(reference: object) -> None:
    with pytest.raises(ApiError, match="videos are made of their prompt alone here") as caught:
        video(input_reference=reference)
    assert (caught.value.status, caught.value.param) == (400, "input_reference")


@pytest.mark.parametrize(("seconds", "frames"), [("5", 81), (5, 81), (1, 17), (0.01, 1), (2.3, 37), (7.5, 121)])
def test_seconds_are_the_nearest_frames_of_the_contract(seconds: object, frames: int) -> None:
    assert video(seconds=seconds).frames == frames


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"prompt": ""}, "prompt", "at least 1 character"),
        ({"prompt": 5}, "prompt", "valid string"),
        ({"prompt": "x" * 32_001}, "prompt", "at most 32000"),
        ({"prompt": "\ud800"}, "prompt", "unicode"),
        ({"size": "832"}, "size", "not WIDTHxHEIGHT"),
        ({"size": "-16x16"}, "size", "not WIDTHxHEIGHT"),
        ({"size": "832X480"}, "size", "such as 832x480"),
        ({"size": "0x480"}, "size", "not WIDTHxHEIGHT"),
        ({"size": "8320x480"}, "size", "the largest is 4096x4096"),
        ({"size": "9999999x9999999"}, "size", "the largest is"),
        ({"size": "830x480"}, "size", "832x480 would do"),
        ({"frames": 18}, "frames", "17 or 21 would do"),
        ({"frames": 0}, "frames", "greater than or equal to 1"),
        ({"frames": -5}, "frames", "greater than or equal to 1"),
        ({"frames": 125}, "frames", "above the limit of 121"),
        ({"frames": 17, "seconds": 1}, "seconds", "give one of them"),
        ({"seconds": "soon"}, "seconds", "valid number"),
        ({"seconds": 60}, "seconds", "the most is 121"),
        ({"seconds": float("nan")}, "seconds", "finite"),
        ({"seconds": 0}, "seconds", "greater than 0"),
        ({"seconds": "0"}, "seconds", "seconds is '0'; write more than 0, at most 3600"),
        ({"seconds": "0.000"}, "seconds", "write more than 0"),
        ({"seconds": "3600.1"}, "seconds", "at most 3600"),
        ({"seconds": "-1"}, "seconds", "valid number"),
        ({"seconds": "1e1"}, "seconds", "valid number"),
        ({"seconds": True}, "seconds", "valid number"),
        ({"steps": 0}, "steps", "greater than or equal to 1"),
        ({"steps": 201}, "steps", "above the limit of 200"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"seed": 1 << 63}, "seed", "less than or equal to"),
        ({"guidance": "much"}, "guidance", "valid number"),
        ({"quality": "hd"}, "quality", "this route takes prompt, model, size"),
        ({"n": 2}, "n", "is not known"),
    ],
)
def test_bad_videos_are_refused_in_one_sentence(body: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ApiError) as caught:
        video(**body)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert says in caught.value.message
    assert "\n" not in caught.value.message and len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 11}, "n", "above the limit of 10"),
        ({"response_format": "base64"}, "response_format", "b64_json"),
        ({"response_format": "url", "stream": True}, "response_format", "leave response_format out"),
        ({"n": "2"}, "n", "valid integer"),
        ({"n": True}, "n", "valid integer"),
        ({"deadline": 0}, "deadline", "greater than 0"),
        ({"deadline": 1e9}, "deadline", "less than or equal to 86400"),
        ({"frames": 5}, "frames", "is not known"),
    ],
)
def test_bad_images_are_refused_in_one_sentence(body: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ApiError, match=says) as caught:
        image(**body)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_another_model_is_not_found() -> None:
    with pytest.raises(ApiError, match="'wan'") as caught:
        video(model="sora-2")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("field", ["prompt", "model", "size", "user", "safety_identifier", "negative_prompt"])
def test_text_that_is_no_unicode_is_refused_wherever_it_stands(field: str) -> None:
    with pytest.raises(ApiError, match="unicode") as caught:
        image(**{field: "\ud800"})
    assert (caught.value.status, caught.value.param) == (400, field)


def test_the_first_unknown_field_of_many_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """To list them all held up every other request for seconds."""
    monkeypatch.setattr(ImageBody, "model_validate", None)
    with pytest.raises(ApiError) as caught:
        image(**{f"x{number}" * 50: number for number in range(100_000)})
    assert (caught.value.status, caught.value.code) == (400, "unknown_field")
    assert len(caught.value.message) < 400 and len(caught.value.param or "") == 60


@pytest.mark.parametrize("data", [None, [], 3, "x", [{"prompt": "a"}]])
def test_a_body_that_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(ApiError, match="one JSON object"):
        checked(VideoBody, data)


@given(size=st.from_regex(r"[0-9]{1,5}x[0-9]{1,5}", fullmatch=True) | st.text(max_size=12), frames=st.integers())
def test_what_is_taken_is_exactly_what_was_asked_and_inside_the_bounds(size: str, frames: int) -> None:
    try:
        wanted = video(size=size, frames=frames)
    except ApiError as error:
        assert error.status == 400 and error.param in ("size", "frames")
        return
    assert size == "auto" or size == f"{wanted.width}x{wanted.height}"
    assert wanted.frames == frames and frames % 4 == 1 and frames <= 121
    assert wanted.width % 16 == wanted.height % 16 == 0
