"""Answers on their way, counted, so that a server that stops cuts none while there is time.

An answer is owed from the moment at which its request has come whole (half a request is owed nothing: its client may
never send the rest) until the last of it has been handed to the socket. A large body goes out in pieces: the server
takes the next one when the client has taken the one before, which is how it is known what a slow client still lacks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PIECE: Final = 1 << 18
"""Bytes."""


class Outgoing:
    """How many answers are owed. Safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owed = 0

    def begin(self) -> None:
        """One more is owed."""
        with self._changed:
            self._owed += 1

    def end(self) -> None:
        """One has gone out, or its client is gone."""
        with self._changed:
            self._owed -= 1
            self._changed.notify_all()

    def wait_until_sent(self, timeout: float) -> bool:
        """Block until none is owed, at most ``timeout`` seconds; whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._owed, timeout)


class CountAnswers:
    """The middleware that counts them."""

    def __init__(self, app: ASGIApp, outgoing: Outgoing) -> None:
        self._app = app
        self._outgoing = outgoing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        owed = False

        def begin() -> None:
            nonlocal owed
            if not owed:
                owed = True
                self._outgoing.begin()

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                begin()
            return message

        async def sent(message: Message) -> None:
            begin()
            for piece in pieces(message):
                await send(piece)

        try:
            await self._app(scope, received, sent)
        finally:
            if owed:
                self._outgoing.end()


def pieces(message: Message) -> Iterator[Message]:
    """The same message, a large body cut. The last piece is empty: it is taken when those before it were."""
    body = message.get("body", b"")
    if len(body) <= PIECE:
        yield message
        return
    for start in range(0, len(body), PIECE):
        yield {**message, "body": body[start : start + PIECE], "more_body": True}
    yield {**message, "body": b""}
