"""Which bytes of a file are asked for: RFC 9110's own examples, what is passed over, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.ranges import part_of

TAG = '"video_1"'


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("bytes=0-499", range(500)),
        ("bytes=500-999", range(500, 1000)),
        ("bytes=9500-", range(9500, 10_000)),
        ("bytes=-500", range(9500, 10_000)),
        ("bytes=0-0", range(1)),
        ("bytes=-1", range(9999, 10_000)),
        ("Bytes= 9999-123456789 ", range(9999, 10_000)),
        ("bytes=-123456789", range(10_000)),
    ],
)
def test_one_range_is_taken(header: str, span: range) -> None:
    assert part_of({"range": header}, 10_000, TAG) == span


@pytest.mark.parametrize(
    "header",
    ["", "bytes=-", "bytes=5-4", "bytes=0-1,5-6", "lines=0-1", "bytes 0-1", "bytes=a-b", "bytes=٣-٤", "bytes=1-2-3"],
)
def test_what_is_no_single_range_of_bytes_gives_all_of_it(header: str) -> None:
    assert part_of({"range": header}, 10_000, TAG) is None


@pytest.mark.parametrize("header", ["bytes=10000-", "bytes=10000-10001", "bytes=-0"])
def test_a_range_behind_the_end_is_refused_with_the_length(header: str) -> None:
    with pytest.raises(ApiError, match="10000") as refused:
        part_of({"range": header}, 10_000, TAG)
    assert (refused.value.status, refused.value.headers) == (416, {"Content-Range": "bytes */10000"})


@pytest.mark.parametrize(("condition", "taken"), [(TAG, True), ('"other"', False), ("Mon, 30 Nov 2026 0:0:0", False)])
def test_a_range_of_what_has_changed_is_no_range(condition: str, taken: bool) -> None:
    assert (part_of({"range": "bytes=1-2", "if-range": condition}, 9, TAG) is not None) is taken


@given(header=st.text() | st.from_regex(r"bytes=[0-9]{0,3}-[0-9]{0,3}", fullmatch=True), size=st.integers(1, 400))
def test_what_is_taken_lies_within_the_file_and_is_not_empty(header: str, size: int) -> None:
    try:
        span = part_of({"range": header}, size, TAG)
    except ApiError as error:
        assert error.status == 416
        return
    assert span is None or 0 <= span.start < span.stop <= size


# Over HTTP


@pytest.fixture
def video(videos: Any) -> str:
    made = videos.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]
    videos.finished(made)
    return f"/v1/videos/{made}/content"


def test_a_video_is_fetched_in_parts_and_goes_on_where_a_download_broke(videos: Any, video: str) -> None:
    shelf = videos.queue.shelf
    whole = videos.client.head(video)
    assert (whole.status_code, whole.content, whole.headers["accept-ranges"]) == (200, b"", "bytes")
    size, tag = int(whole.headers["content-length"]), whole.headers["etag"]
    first = videos.client.get(video, headers={"Range": "bytes=0-99"})
    assert (first.status_code, first.headers["content-range"]) == (206, f"bytes 0-99/{size}")
    assert not shelf.wait_until_collected(0, 0)
    rest = videos.client.get(video, headers={"Range": "bytes=100-", "If-Range": tag})
    assert rest.status_code == 206
    assert shelf.wait_until_collected(0, 20)
    assert first.content + rest.content == videos.client.get(video).content
    late = videos.client.get(video, headers={"Range": f"bytes={size}-"})
    assert (late.status_code, late.headers["content-range"]) == (416, f"bytes */{size}")
    assert late.json()["error"]["code"] == "range_not_satisfiable"
