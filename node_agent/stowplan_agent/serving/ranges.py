"""Which part of a file a request asks for (RFC 9110, 14.2): players seek in a video, and broken downloads go on.

One range of bytes is taken. Whatever else a Range header says is passed over, as the RFC allows: the answer is then the
whole file. Only a range that begins behind the end is refused, and the refusal says how long the file is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Header

from stowplan_agent.serving.errors import ApiError

Range = Annotated[str | None, Header(alias="Range", description="bytes=FIRST-LAST, or all of it where it is another")]
"""What a route of files takes."""
_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.ASCII | re.IGNORECASE)


def part_of(asked: Mapping[str, str], size: int, tag: str) -> range | None:
    """The bytes of a file of ``size`` bytes that the headers ask for; None for all of them.

    ``tag``: the file's entity tag, which an If-Range header must have. Raises ApiError (416).
    """
    found = _RANGE.fullmatch(asked.get("range", ""))
    if found is None or asked.get("if-range", tag) != tag:
        return None
    first, last = found.groups()
    if not first:
        return None if not last else _within(range(size - min(int(last), size), size), size)
    if last and int(last) < int(first):
        return None
    return _within(range(int(first), min(int(last) + 1, size) if last else size), size)


def _within(span: range, size: int) -> range:
    if len(span):
        return span
    message = f"the range has no byte of the {size} that there are; ask for one that begins before byte {size}"
    raise ApiError(416, message, code="range_not_satisfiable", headers={"Content-Range": f"bytes */{size}"})
