"""HEAD wherever there is GET: the same answer without its body (RFC 9110, 9.3.2), as asked before a download.

The application answers a GET, and is told to stop at the first byte of a body that has more: nothing is read of a file,
nobody's result counts as fetched, and what follows a job does not follow it.
"""

from __future__ import annotations

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Enough(OSError):  # noqa: N818 - an outcome, named as one
    """There is nobody for the rest, as where a client has hung up."""


class AnswerHeads:
    """The middleware that does it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = False

        async def head(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                await send(message)
            elif not begun:
                begun = True
                await send({"type": "http.response.body", "body": b""})
                if message.get("more_body", False):
                    raise _Enough

        with suppress(_Enough):
            await self._app({**scope, "method": "GET"}, receive, head)
