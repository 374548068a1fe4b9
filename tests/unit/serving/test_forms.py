"""Forms meet the same bound on size as JSON, however their media type is spelt, and no error of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from starlette.requests import Request
from starlette.types import Message

from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.fields import VideoBody
from stowplan_agent.serving.payload import BODY_LIMIT, read_body

FORM = "multipart/form-data; boundary=b"


def field(value: str, name: str = "prompt") -> bytes:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


END = b"--b--\r\n"
SMALL = field("a") + END


def read(content_type: str, *chunks: bytes) -> VideoBody:
    taken: list[int] = []

    def messages() -> Iterable[Message]:
        for number, chunk in enumerate(chunks, start=1):
            taken.append(number)
            yield {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}

    coming = iter(messages())

    async def receive() -> Message:
        return next(coming)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", content_type.encode())], "app": None}
    try:
        return asyncio.run(read_body(VideoBody, Request(scope, receive)))
    finally:
        assert len(taken) * len(chunks[0]) <= 2 * BODY_LIMIT, "it read on beyond the limit"


@pytest.mark.parametrize("content_type", [FORM, "Multipart/Form-Data; boundary=b", "multipart/form-data ;boundary=b"])
def test_a_form_however_its_type_is_spelt(content_type: str) -> None:
    assert read(content_type, SMALL[:30], SMALL[30:]).prompt == "a"


@pytest.mark.parametrize(
    "chunks",
    [
        [SMALL, *[b"z" * (1 << 18)] * 64],  # behind its end
        [b"z" * (1 << 18)] * 64,  # before its beginning
        [field("a" * 120_000)] * 31,
    ],
)
def test_a_form_above_the_limit_is_not_read_to_its_end(chunks: list[bytes]) -> None:
    with pytest.raises(ApiError, match="larger than 1048576 bytes") as refused:
        read(FORM, *chunks)
    assert refused.value.status == 413


@pytest.mark.parametrize("charset", ["undefined", '"a\0b"', "punycode", "utf-16"])
def test_a_charset_that_decodes_nothing_is_the_clients_error(charset: str) -> None:
    with pytest.raises(ApiError) as refused:
        read(f"{FORM}; charset={charset}", field("\x80..a") + END)
    assert refused.value.status == 400
