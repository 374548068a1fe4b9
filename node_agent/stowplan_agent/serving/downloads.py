"""Files of the shelf as answers: streamed, since a video may be large, and whole even if the shelf drops it meanwhile.

The file is opened before the answer begins. Whoever deletes it takes its name; its bytes stay until this has ended.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

CHUNK: Final = 1 << 18


async def file_answer(
    path: Path, media_type: str, name: str, sent: Callable[[], None] = lambda: None
) -> StreamingResponse:
    """The file, to be saved as ``name``; ``sent`` is called when all of it has gone out.

    Raises FileNotFoundError where it is gone.
    """
    file = await run_in_threadpool(path.open, "rb")
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return StreamingResponse(_chunks(file, sent), media_type=media_type, headers=headers)


async def _chunks(file: BinaryIO, sent: Callable[[], None]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await run_in_threadpool(file.read, CHUNK):
            yield chunk
        sent()
