"""What the routes answer, as types: the source of the OpenAPI document, against which tests hold every answer.

Handlers send plain dictionaries; these are not run through at a request, since an image in base64 is megabytes.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A JSON answer with these fields and no other."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Answer):
    """One sentence, and what a program may look at."""

    message: str
    type: Literal["invalid_request_error", "server_error", "rate_limit_error"]
    param: str | None
    code: str


class ErrorAnswer(Answer):
    """Any answer other than success."""

    error: ErrorDetail


class Alive(Answer):
    """GET /liveness."""

    status: Literal["alive"]


class Health(Answer):
    """GET /health."""

    phase: str
    message: str


class Model(Answer):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Answer):
    """GET /v1/models."""

    object: Literal["list"]
    data: list[Model]


class Image(Answer):
    """One image: itself, or where it is."""

    b64_json: str | None = None
    url: str | None = None


class Images(Answer):
    """POST /v1/images/generations."""

    created: int
    output_format: Literal["png"]
    size: str
    seed: int
    data: list[Image]


class VideoFailure(Answer):
    """Why a video was not made."""

    code: str
    message: str


class Video(Answer):
    """A video job, with steps, frames and seed beside OpenAI's fields."""

    id: str
    object: Literal["video"]
    created_at: int
    completed_at: int | None
    expires_at: int | None
    status: Literal["queued", "in_progress", "completed", "failed"]
    progress: int
    model: str
    prompt: str
    size: str
    seconds: str
    remixed_from_video_id: str | None
    error: VideoFailure | None
    frames: int
    step: int
    steps: int
    seed: int


class Videos(Answer):
    """GET /v1/videos."""

    object: Literal["list"]
    data: list[Video]
    first_id: str | None
    last_id: str | None
    has_more: bool


class VideoDeleted(Answer):
    """DELETE /v1/videos/{video_id}."""

    id: str
    object: Literal["video.deleted"]
    deleted: Literal[True]


SENTENCES: Final = {
    400: "The request is malformed, or outside the model's own frame and size contract",
    404: "There is no such thing here",
    408: "The request's deadline has passed",
    409: "The job is not in a state for that",
    413: "The body is too large",
    416: "The range begins behind the end of the file; Content-Range says how long that is",
    422: "The request cannot fit on the device, or its Idempotency-Key came with another one before",
    429: "The queue is full; Retry-After says when to try again",
    499: "The request was cancelled: its client hung up",
    500: "The request failed, and only this one",
    503: "The server is not ready, or is stopping; Retry-After says when to try again",
}
"""What each answer other than success means."""
TAKING: Final = (400, 404, 413, 422, 429, 499, 500, 503)
"""How a route may answer that takes a body and queues it."""
EVENTS: Final = "text/event-stream"
Documented = dict[int | str, dict[str, Any]]


def errors(*statuses: int) -> Documented:
    """These answers, for ``responses`` of a route."""
    retry = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return {
        status: {"model": ErrorAnswer, "description": SENTENCES[status]}
        | ({"headers": retry} if status in (429, 503) else {})
        for status in statuses
    }


def answer(model: type[Answer], *statuses: int, content: dict[str, Any] | None = None) -> Documented:
    """A JSON answer of this model, and these errors. ``content``: further forms by their media type."""
    return {200: {"model": model, "description": model.__doc__, "content": content or {}}, **errors(*statuses)}


def other(content: dict[str, Any], what: str, *statuses: int) -> Documented:
    """An answer in these forms by their media type, and these errors."""
    return {200: {"description": what, "content": content}, **errors(*statuses)}


def file_of(media_type: str, what: str, *statuses: int) -> Documented:
    """A file of this type or a range of it, and these errors."""
    whole = other({media_type: text_of("bytes")}, what, *statuses, 416)
    return whole | {206: {"description": "The range that was asked for", "content": whole[200]["content"]}}


def text_of(what: str) -> dict[str, Any]:
    """The schema of an answer that is no JSON."""
    return {"schema": {"type": "string", "description": what}}


def events_of(what: str) -> dict[str, Any]:
    """Server-sent events, by the schema of one of them."""
    fields = {name: {"type": "string"} for name in ("event", "data")}
    one = {"type": "object", "description": what, "required": list(fields), "properties": fields}
    return {EVENTS: {"schema": one | {"additionalProperties": False}}}


def without_unused(document: dict[str, Any]) -> dict[str, Any]:
    """The document without the 422 that FastAPI adds for parameters: here these are answered with 400."""
    for path in document["paths"].values():
        for operation in path.values():
            schema = operation["responses"].get("422", {}).get("content", {}).get("application/json", {})
            if schema.get("schema", {}).get("$ref", "").endswith("/HTTPValidationError"):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(name, None)
    return document
