"""From a body to a complete request: checked against the model's own contract, with every default filled in.

Sizes and frames are never rounded: what comes out is what was asked for. Seconds become the nearest frames that the
model makes.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass

from stowplan_agent.serving.errors import ApiError, bad_value
from stowplan_agent.serving.fields import LONGEST_SECONDS, Body, ImageBody, VideoBody
from stowplan_agent.serving.requests import GenerationRequest, Kind

Seeds = Callable[[], int]
"""Draws a seed for a request that names none."""


@dataclass(frozen=True)
class ServingDefaults:
    """What the model makes when a request leaves it open, and the bounds of what may be asked."""

    model: str
    """The name in GET /v1/models."""
    kind: Kind
    width: int
    height: int
    steps: int
    frames: int = 1
    fps: int = 16
    guidance: float | None = None
    size_multiple: int = 16
    """Width and height must be divisible by it; the VAE's factor times the patch of the transformer."""
    frame_stride: int = 4
    """Frames must be a multiple of it plus 1; the VAE's factor in time."""
    max_width: int = 4096
    max_height: int = 4096
    max_frames: int = 1025
    max_steps: int = 200
    max_count: int = 10


Defaults = ServingDefaults | Callable[[], ServingDefaults | None]
"""The defaults, or where to find them: None while the model is not known yet."""


def image_request(body: ImageBody, defaults: ServingDefaults, seeds: Seeds) -> GenerationRequest:
    """The complete request for images. Raises ApiError (400, or 404 for another model)."""
    _must_serve("image", body, defaults)
    count = body.n or 1
    _at_most("n", count, defaults.max_count)
    if body.stream and body.response_format == "url":
        raise bad_value("stream gives the images themselves; leave response_format out, or stream", "response_format")
    return _request(body, defaults, seeds, frames=1, count=count)


def video_request(body: VideoBody, defaults: ServingDefaults, seeds: Seeds) -> GenerationRequest:
    """The complete request for a video. Raises ApiError (400, or 404 for another model)."""
    _must_serve("video", body, defaults)
    return _request(body, defaults, seeds, frames=_frames(body, defaults), count=1)


def _request(body: Body, defaults: ServingDefaults, seeds: Seeds, frames: int, count: int) -> GenerationRequest:
    width, height = _size(body.size, defaults)
    steps = body.steps or defaults.steps
    _at_most("steps", steps, defaults.max_steps)
    return GenerationRequest(
        kind=defaults.kind,
        prompt=body.prompt,
        negative_prompt=body.negative_prompt,
        width=width,
        height=height,
        frames=frames,
        steps=steps,
        seed=seeds() if body.seed is None else body.seed,
        guidance=defaults.guidance if body.guidance is None else body.guidance,
        count=count,
    )


def _must_serve(kind: Kind, body: Body, defaults: ServingDefaults) -> None:
    if body.model is not None and body.model != defaults.model:
        message = f"model {body.model!r} is not served here; this server has {defaults.model!r}"
        raise ApiError(404, message, code="model_not_found", param="model")
    if kind != defaults.kind:
        route = "/v1/images/generations" if defaults.kind == "image" else "/v1/videos"
        raise bad_value(
            f"{defaults.model} makes {defaults.kind}s, not {kind}s; use POST {route}", "model", "wrong_kind"
        )


def _size(text: str | None, defaults: ServingDefaults) -> tuple[int, int]:
    if text is None or text == "auto":
        return defaults.width, defaults.height
    match = re.fullmatch(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})", text, re.ASCII)
    if match is None:
        example = f"{defaults.width}x{defaults.height}"
        raise bad_value(f"size {shorten(text)} is not WIDTHxHEIGHT in pixels, such as {example}", "size")
    width, height = int(match[1]), int(match[2])
    if width > defaults.max_width or height > defaults.max_height:
        largest = f"{defaults.max_width}x{defaults.max_height}"
        raise bad_value(f"size {text} is larger than this server takes; the largest is {largest}", "size")
    multiple = defaults.size_multiple
    if width % multiple or height % multiple:
        near = f"{_nearest(width, multiple)}x{_nearest(height, multiple)}"
        raise bad_value(f"size {text} is not made of multiples of {multiple} pixels; {near} would do", "size")
    return width, height


def _frames(body: VideoBody, defaults: ServingDefaults) -> int:
    stride = defaults.frame_stride
    if body.frames is not None and body.seconds is not None:
        raise bad_value("seconds and frames are both set; give one of them", "seconds")
    if body.seconds is not None:
        seconds = float(body.seconds)
        if not 0 < seconds <= LONGEST_SECONDS:  # of text; of a number its field sees to it
            raise bad_value(f"seconds is {body.seconds!r}; write more than 0, at most {LONGEST_SECONDS}", "seconds")
        frames = max(0, round(seconds * defaults.fps / stride)) * stride + 1
        limit = defaults.max_frames
        if frames > limit:
            raise bad_value(
                f"seconds {seconds:g} is {frames} frames at {defaults.fps} a second; the most is {limit}", "seconds"
            )
        return frames
    frames = defaults.frames if body.frames is None else body.frames
    _at_most("frames", frames, defaults.max_frames)
    if (frames - 1) % stride:
        below = (frames - 1) // stride * stride + 1
        raise bad_value(
            f"frames {frames} is not a multiple of {stride} plus 1; {below} or {below + stride} would do", "frames"
        )
    return frames


def _nearest(value: int, multiple: int) -> int:
    return max(1, round(value / multiple)) * multiple


def _at_most(param: str, value: int, limit: int) -> None:
    if value > limit:
        raise bad_value(f"{param} {value} is above the limit of {limit}", param)


def shorten(value: object) -> str:
    """A value as it may appear in a sentence: its repr, cut at 60 characters, whatever a value there is."""
    text = repr(value[:60]) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
