"""Images within JSON, written in pieces: the same bytes as in one go, of a length known before, by a thread."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from stowplan_agent.serving.downloads import Pieces
from stowplan_agent.serving.inline import PIECE, Segments, answer_with, event_with, length_of, written

SAID = {"created": 5, "size": '1"x1', "seed": 7}


def text_of(segments: Segments) -> str:
    length, pieces = length_of(segments), list(written(segments))
    assert sum(map(len, pieces)) == length
    assert all(PIECE <= len(piece) < 3 * PIECE for piece in pieces[:-1])
    return b"".join(pieces).decode()


@given(images=st.lists(st.binary(min_size=1, max_size=50), max_size=4))
def test_an_answer_is_the_json_that_it_would_be_in_one_go(images: list[bytes]) -> None:
    data = [{"b64_json": base64.b64encode(image).decode()} for image in images]
    assert text_of(answer_with(SAID, [io.BytesIO(image) for image in images])) == json.dumps(SAID | {"data": data})


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 2])
def test_padding_comes_at_the_end_only(size: int) -> None:
    image = bytes(range(251)) * (size // 251 + 1)
    event = text_of(event_with("made", SAID, io.BytesIO(image[:size])))
    name, data, *end = event.split("\n")
    assert (name, end) == ("event: made", ["", ""])
    found = json.loads(data.removeprefix("data: "))
    assert base64.b64decode(found.pop("b64_json"), validate=True) == image[:size]
    assert found == {"type": "made"} | SAID


def test_pieces_are_read_beside_the_event_loop_and_what_they_come_from_is_closed() -> None:
    file, readers, told, out = io.BytesIO(b"x"), set[int](), list[str](), list[Message]()

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            readers.add(threading.get_ident())
            yield b"abc"

    async def send(message: Message) -> None:
        assert not told, "it was told before all of it was sent"
        out.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    def sent() -> None:
        told.append("sent")

    asyncio.run(Pieces(pieces(), 9, "text/plain", files=[file], sent=sent)({"type": "http"}, receive, send))
    assert threading.get_ident() not in readers
    assert b"".join(one.get("body", b"") for one in out) == b"abcabcabc"
    assert (file.closed, told) == (True, ["sent"])
