"""The fields of request bodies, as OpenAI's clients and ours send them, with what each may be.

Field names and defaults are those of OpenAI's images and videos; steps, seed, negative_prompt, guidance, frames and
deadline are ours. null stands for an absent field, as in OpenAI's own API, and so does OpenAI's own default where it is
spelt out, as many programs do. What asks for something that is not done here is refused with the way out, and a field
that we do not know by its name: neither a wish nor a typing error may be ignored in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(max_length=1000)]
Prompt = Annotated[str, Field(min_length=1, max_length=32_000)]
Seed = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
Guidance = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
LONGEST_SECONDS: Final = 3600
Seconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
SecondsText = Annotated[str, Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,6})?$")]
"""OpenAI's clients send seconds as text."""
LONGEST_DEADLINE: Final = 86_400.0
WAYS_OUT: Final[Mapping[str, str]] = {
    "quality": "steps says how much work an image is",
    "background": "images are made without transparency; cut the background out afterwards",
    "output_compression": "PNG loses nothing and has no such setting; convert images afterwards",
    "output_format": "images are PNG; convert them afterwards",
    "partial_images": "with stream the steps are told, and each image when it is made",
    "style": "say it in the prompt",
    "moderation": "nothing is moderated here; leave it out",
    "input_reference": "videos are made of their prompt alone here",
}
"""What to do instead where a value is refused because it asks for what is not done here."""


class Body(BaseModel):
    """What both kinds of request have."""

    model_config = ConfigDict(extra="forbid")

    prompt: Prompt
    model: Name | None = None
    size: Name | None = Field(None, description="WIDTHxHEIGHT in pixels; auto, or absent: the deployment's first shape")
    steps: Annotated[int, Field(ge=1)] | None = None
    seed: Seed | None = Field(None, description="the same seed gives the same output; absent: drawn, and returned")
    negative_prompt: Annotated[str, Field(max_length=32_000)] | None = None
    guidance: Guidance | None = None
    deadline: Annotated[float, Field(gt=0, le=LONGEST_DEADLINE, allow_inf_nan=False)] | None = Field(
        None, description="seconds from now, waiting included, after which the request is given up"
    )
    user: Name | None = Field(None, description="accepted for OpenAI clients; not used")
    safety_identifier: Name | None = Field(None, description="accepted for OpenAI clients; not used")


class ImageBody(Body):
    """POST /v1/images/generations."""

    n: Annotated[int, Field(ge=1)] | None = Field(None, description="images; absent: one")
    response_format: Literal["b64_json", "url"] | None = Field(None, description="absent: b64_json")
    output_format: Literal["png"] | None = None
    stream: bool | None = Field(None, description="answer with server-sent events: the steps, then the images")
    quality: Literal["auto", "standard"] | None = Field(None, description=f"default only; {WAYS_OUT['quality']}")
    background: Literal["auto", "opaque"] | None = Field(None, description="images have no transparency")
    moderation: Literal["auto", "low"] | None = Field(None, description="nothing is moderated")
    output_compression: Annotated[int, Field(ge=100, le=100)] | None = Field(None, description="none: PNG")
    partial_images: Annotated[int, Field(ge=0, le=0)] | None = Field(None, description="there are none")
    style: Literal["vivid"] | None = Field(None, description=f"default only; {WAYS_OUT['style']}")


class VideoBody(Body):
    """POST /v1/videos."""

    seconds: Seconds | SecondsText | None = None
    frames: Annotated[int, Field(ge=1)] | None = Field(None, description="instead of seconds")
    input_reference: None = Field(None, description="not taken; " + WAYS_OUT["input_reference"])
