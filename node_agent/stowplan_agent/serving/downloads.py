"""Large answers: in pieces that a thread reads, so that neither memory nor the event loop holds one as a whole.

What is sent is open before the answer begins. Whoever deletes a file meanwhile takes its name; its bytes stay until
this has ended, well or not, and then the file is closed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from stowplan_agent.serving.ranges import part_of

CHUNK: Final = 1 << 18
"""Bytes of a piece."""


class Pieces(StreamingResponse):
    """An answer of ``length`` bytes in pieces; ``sent`` is called when all of them have gone out.

    ``files`` are what the pieces come from, closed in the end. What is there already is given as bytes: each piece
    that a thread reads costs two changes of thread.
    """

    def __init__(
        self,
        pieces: Iterator[bytes] | bytes,
        length: int,
        media_type: str,
        *,
        files: Sequence[BinaryIO],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        headers = {"Content-Length": str(length), **(headers or {})}
        super().__init__(_one(pieces) if isinstance(pieces, bytes) else pieces, status, headers, media_type)
        self._files = files
        self._sent = sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, as ASGI has it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            for file in self._files:
                file.close()

    async def stream_response(self, send: Send) -> None:
        """Send the pieces."""
        await super().stream_response(send)
        self._sent()


async def _one(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


async def file_answer(
    path: Path,
    media_type: str,
    asked: Mapping[str, str],
    sent: Callable[[], None] = lambda: None,
) -> Pieces:
    """The file, to be saved under its own name, or the range of it that the headers of a request ask for.

    ``sent`` is called when the last byte of the file has gone out. Raises FileNotFoundError where it is gone, and
    ApiError (416) for a range that begins behind its end.
    """
    tag = f'"{path.stem}"'  # a name is given once: what it names never changes
    part = await run_in_threadpool(_opened, path, asked, tag)
    headers = {"Accept-Ranges": "bytes", "ETag": tag, "Content-Disposition": f'attachment; filename="{path.name}"'}
    if part.is_range:
        headers["Content-Range"] = f"bytes {part.span.start}-{part.span.stop - 1}/{part.size}"
    return Pieces(
        part.pieces,
        len(part.span),
        media_type,
        files=[part.file],
        status=206 if part.is_range else 200,
        headers=headers,
        sent=sent if part.span.stop == part.size else lambda: None,
    )


@dataclass(frozen=True)
class _Part:
    """An open file of ``size`` bytes, and the ``span`` of it that is sent."""

    file: BinaryIO
    size: int
    span: range
    is_range: bool
    pieces: Iterator[bytes] | bytes


def _opened(path: Path, asked: Mapping[str, str], tag: str) -> _Part:
    file = path.open("rb")
    try:
        size = os.fstat(file.fileno()).st_size
        wanted = part_of(asked, size, tag)
        span = range(size) if wanted is None else wanted
        file.seek(span.start)
        pieces = file.read(len(span)) if len(span) <= CHUNK else _read(file, len(span))
        return _Part(file, size, span, wanted is not None, pieces)
    except BaseException:
        file.close()
        raise


def _read(file: BinaryIO, left: int) -> Iterator[bytes]:
    while left and (piece := file.read(min(CHUNK, left))):
        left -= len(piece)
        yield piece
