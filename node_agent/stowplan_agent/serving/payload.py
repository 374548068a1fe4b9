"""From bytes on the wire to a checked body, with one sentence about the first thing that is wrong.

Bodies are read by hand, because OpenAI's clients send JSON to one route and forms to another, and both must meet the
same checks, the same bound on size, and the same form of error.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Scope

from stowplan_agent.serving.bodies import shorten
from stowplan_agent.serving.errors import ApiError, bad_value
from stowplan_agent.serving.fields import WAYS_OUT, Body

BODY_LIMIT: Final = 1 << 20
"""Bytes of a request body."""
LONGEST_NAME: Final = 60
"""Characters of a field's name that an error repeats."""

AnyBody = TypeVar("AnyBody", bound=Body)


async def read_body(kind: type[AnyBody], request: Request) -> AnyBody:
    """The body of a request as a value. Raises ApiError: 400, 413 above the limit, or 499 where it never came."""
    try:
        return await _read(kind, request)
    except ClientDisconnect:  # nobody reads the answer; without one the server would log a traceback for each
        raise ApiError(499, "the client hung up before its body had come", code="cancelled") from None


async def _read(kind: type[AnyBody], request: Request) -> AnyBody:
    data = await _bounded(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        return checked(kind, await _form(request.scope, data), strict=False)
    try:
        return checked(kind, json.loads(data))
    except (ValueError, RecursionError):
        raise bad_value("the body is not JSON; send one JSON object with at least a prompt") from None


async def _bounded(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_LIMIT:
            raise ApiError(413, f"the body is larger than {BODY_LIMIT} bytes, the limit", code="body_too_large")
    return bytes(data)


def checked(kind: type[AnyBody], data: object, *, strict: bool = True) -> AnyBody:
    """Plain data as a body; what is not ``strict`` may be text that reads as a number. Raises ApiError (400).

    The first field that is not known ends it: a body has room for a hundred thousand, each of which would be listed.
    """
    unknown = next((name for name in data if name not in kind.model_fields), None) if isinstance(data, dict) else None
    if unknown is not None:
        known = ", ".join(kind.model_fields)
        message = f"field {shorten(unknown)} is not known; this route takes {known}"
        raise bad_value(message, str(unknown)[:LONGEST_NAME], "unknown_field")
    try:
        return kind.model_validate(data, strict=strict)
    except ValidationError as error:
        raise _sentence(error) from None


def accepts(body: type[Body]) -> dict[str, Any]:
    """What a route takes, for the OpenAPI document."""
    schema = {"schema": body.model_json_schema()}
    return {"requestBody": {"required": True, "content": {"application/json": schema, "multipart/form-data": schema}}}


async def _form(scope: Scope, data: bytes) -> object:
    """The text fields of a form, as OpenAI's video client sends them; files are not taken."""

    async def receive() -> Message:
        return {"type": "http.request", "body": data}

    try:
        async with Request(scope, receive).form(max_files=0, max_fields=32, max_part_size=BODY_LIMIT // 8) as form:
            return {name: value for name, value in form.items() if isinstance(value, str)}
    except HTTPException as error:
        raise bad_value(f"the form cannot be read ({error.detail}); send text fields only, no files") from None
    except ValueError as error:  # of its charset: Python knows some that decode nothing
        raise bad_value(f"the form cannot be read ({error}); send its fields as UTF-8") from None


def _sentence(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else None  # bodies are flat: what follows names a part of a union
    if field is None:
        return bad_value("the body must be one JSON object with at least a prompt")
    if first["type"] == "missing":
        return bad_value(f"{field} is missing; it is required", field, "missing_field")
    what = first["msg"][0].lower() + first["msg"][1:]
    instead = f"; {WAYS_OUT[field]}" if field in WAYS_OUT else ""
    return bad_value(f"{field} is {shorten(first['input'])}: {what}{instead}", field)
