"""HEAD is GET without a body: of every route, without the reading, fetching and following that a GET would do."""

from __future__ import annotations

from typing import Any

import pytest

DEADLINE = 20.0


@pytest.mark.parametrize(
    "path", ["/liveness", "/health", "/metrics", "/v1/models", "/v1/models/tiny-wan", "/v1/videos", "/openapi.json",
             "/v1/videos?limit=0", "/v1/videos/video_0", "/residency", "/v1/stored-start", "/nothing"],
)  # fmt: skip
def test_it_has_status_and_headers_of_the_same_get(videos: Any, path: str) -> None:
    whole, head = videos.client.get(path), videos.client.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    varying = {"date", *(["content-length"] if path == "/metrics" else [])}
    assert {k: v for k, v in head.headers.items() if k not in varying} == {
        k: v for k, v in whole.headers.items() if k not in varying
    }


def test_it_fetches_nothing_and_follows_nothing(videos: Any) -> None:
    videos.pipeline.hold()
    video = videos.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]
    events = videos.client.head(f"/v1/videos/{video}/events")  # while it runs: a GET would wait for its end
    assert events.headers["content-type"].startswith("text/event-stream")
    videos.pipeline.release()
    assert videos.queue.wait_until_idle(DEADLINE)
    head = videos.client.head(f"/v1/videos/{video}/content")
    assert int(head.headers["content-length"]) == videos.queue.shelf.held_bytes
    assert not videos.queue.shelf.wait_until_collected(0, 0)
    assert len(videos.client.get(f"/v1/videos/{video}/content").content) == videos.queue.shelf.held_bytes


def test_there_is_none_where_there_is_no_get(videos: Any) -> None:
    answer = videos.client.head("/v1/images/generations")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/v1/videos/", "/health/", "/docs", "/redoc"])
def test_nothing_leads_elsewhere(videos: Any, path: str) -> None:
    answer = videos.client.get(path)
    assert answer.status_code == 404
    assert "GET /openapi.json lists what there is" in answer.json()["error"]["message"]
