"""Images within JSON: in base64, written piece by piece beside what is said about them.

An image is megabytes, ten of them are a hundred: as one JSON value they would stand in memory several times, and hold
up everybody else's request while they are written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

PIECE: Final = 3 << 16
"""Bytes of an image at a time: a multiple of 3, so that only the last has padding."""
Segments = Sequence[bytes | BinaryIO]
"""Bytes as they are, and files whose base64 is written."""


def answer_with(said: Mapping[str, Any], images: Sequence[BinaryIO]) -> Segments:
    """One JSON object: what is said, and the images in ``data``."""
    segments: list[bytes | BinaryIO] = [f'{json.dumps(said)[:-1]}, "data": ['.encode()]
    for number, image in enumerate(images):
        segments += [b', {"b64_json": "' if number else b'{"b64_json": "', image, b'"}']
    return [*segments, b"]}"]


def event_with(name: str, said: Mapping[str, Any], image: BinaryIO) -> Segments:
    """One server-sent event: what is said, and the image in ``b64_json``."""
    head = json.dumps({"type": name, **said})[:-1]
    return [f'event: {name}\ndata: {head}, "b64_json": "'.encode(), image, b'"}\n\n']


def length_of(segments: Segments) -> int:
    """Bytes that `written` gives."""
    return sum(len(one) if isinstance(one, bytes) else -(-_size(one) // 3) * 4 for one in segments)


def written(segments: Segments) -> Iterator[bytes]:
    """The segments in pieces of at least `PIECE` bytes but for the last."""
    held = bytearray()
    for segment in segments:
        for piece in (segment,) if isinstance(segment, bytes) else _base64(segment):
            held += piece
            if len(held) >= PIECE:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


def _base64(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield base64.b64encode(piece)


def _size(file: BinaryIO) -> int:
    size = file.seek(0, 2)
    file.seek(0)
    return size
