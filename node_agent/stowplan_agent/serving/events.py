"""Server-sent events: one a change, a comment where nothing changes, so that nobody in between takes it for dead."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from stowplan_agent.serving.answers import EVENTS
from stowplan_agent.serving.errors import ApiError

STILL_HERE: Final = b": nothing has changed\n\n"
"""A comment, which clients pass over."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Nobody in between may keep events back; the second is for nginx."""


def event(name: str, data: Mapping[str, Any]) -> bytes:
    """One event, with its name in ``type`` too, as OpenAI's are."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def error_event(error: ApiError) -> bytes:
    """An error after the answer has begun, where OpenAI's clients look for it."""
    return f"event: error\ndata: {json.dumps({'error': error.body()})}\n\n".encode()


class EventStream(StreamingResponse):
    """The answer that sends events. ``ended`` is called once whatever happens, even where no event was asked for."""

    def __init__(
        self,
        events: AsyncIterator[bytes],
        headers: Mapping[str, str] | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(events, media_type=EVENTS, headers={**_HEADERS, **(headers or {})})
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, as ASGI has it."""
        try:
            with suppress(ClientDisconnect):  # nobody reads any more, which is no failure
                await super().__call__(scope, receive, send)
        finally:
            self._ended()
