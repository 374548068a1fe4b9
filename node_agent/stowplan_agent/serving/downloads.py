"""Large answers: in pieces that a thread reads, so that neither memory nor the event loop holds one as a whole.

What is sent is open before the answer begins. Whoever deletes a file meanwhile takes its name; its bytes stay until
this has ended, well or not, and then the file is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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

    ``files`` are what the pieces come from, closed in the end.
    """

    def __init__(
        self,
        pieces: Iterator[bytes],
        length: int,
        media_type: str,
        *,
        files: Sequence[BinaryIO],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        headers = {"Content-Length": str(length), **(headers or {})}
        super().__init__(pieces, status, headers, media_type)
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
        """Send the pieces, each read by a thread."""
        await super().stream_response(send)
        self._sent()


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
    file = await run_in_threadpool(path.open, "rb")
    try:
        size = os.fstat(file.fileno()).st_size
        tag = f'"{path.stem}"'  # a name is given once: what it names never changes
        wanted = part_of(asked, size, tag)
    except BaseException:
        file.close()
        raise
    headers = {"Accept-Ranges": "bytes", "ETag": tag, "Content-Disposition": f'attachment; filename="{path.name}"'}
    if wanted is not None:
        headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
    span = range(size) if wanted is None else wanted
    return Pieces(
        _read(file, span),
        len(span),
        media_type,
        files=[file],
        status=200 if wanted is None else 206,
        headers=headers,
        sent=sent if span.stop == size else lambda: None,
    )


def _read(file: BinaryIO, span: range) -> Iterator[bytes]:
    file.seek(span.start)
    left = len(span)
    while left and (piece := file.read(min(CHUNK, left))):
        left -= len(piece)
        yield piece
