"""Whoever waits for a result or comes back with its key is given it: while stopping, and without room on the disk."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from stowplan_agent.serving import contents

DEADLINE = 20.0
KEY = {"Idempotency-Key": "k1"}
IMAGES = "/v1/images/generations"


def ask(images: Any, key: str = "k1", **body: Any) -> httpx.Response:
    answer: httpx.Response = images.client.post(
        IMAGES, json={"prompt": "a"} | body, headers={"Idempotency-Key": key}, timeout=DEADLINE
    )
    return answer


def made(images: Any) -> int:
    """Images that the pipeline has made."""
    text = images.client.get("/metrics").text
    return int(float(text.split('stowplan_requests_total{status="completed"} ')[1].split()[0]))


# While stopping


@pytest.mark.parametrize("body", [{}, {"stream": True}, {"response_format": "url"}])
def test_images_are_answered_again_while_the_server_stops(images: Any, body: dict[str, Any]) -> None:
    first = ask(images, **body)
    images.door.close("the server stops")
    images.queue.shut()
    again = ask(images, **body)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert (
        again.text.split('{"type": "image_generation.completed"')[1:]
        == first.text.split('{"type": "image_generation.completed"')[1:]
    )
    assert made(images) == 1
    for refused in (ask(images, "k2", **body), images.client.post(IMAGES, json={"prompt": "a"} | body)):
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
    assert ask(images, prompt="b", **body).status_code == 422


def test_a_job_is_found_again_while_the_server_stops(videos: Any) -> None:
    videos.pipeline.hold()
    sent = {"json": {"prompt": "a"}, "headers": KEY}
    first = videos.client.post("/v1/videos", **sent).json()["id"]
    videos.queue.shut()
    assert videos.client.post("/v1/videos", **sent).json()["id"] == first
    videos.pipeline.release()
    videos.finished(first)
    assert videos.client.post("/v1/videos", **sent).json()["status"] == "completed"
    videos.client.delete(f"/v1/videos/{first}")
    assert videos.client.post("/v1/videos", **sent).status_code == 503


# Without room


@pytest.mark.parametrize("body", [{}, {"stream": True}])
def test_images_that_cannot_be_kept_are_given_to_whoever_waits(images: Any, body: dict[str, Any]) -> None:
    images.queue.shelf.most_bytes = 10
    first, again = ask(images, **body), ask(images, **body)
    for answer in (first, again):
        assert answer.status_code == 200
        assert "iVBORw0KGgo" in answer.text
        assert "idempotent-replayed" not in answer.headers  # there is nothing to replay: it was made again
    assert made(images) == 2
    assert images.queue.shelf.held_bytes == 0
    by_url = ask(images, "k2", response_format="url")
    assert by_url.status_code == 500
    assert "all results may have 10; ask for less" in by_url.json()["error"]["message"]


def test_what_made_room_before_it_was_read_is_still_given(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is gone when its answer is written, for a newer one that ended in between."""
    ended = threading.Event()
    complete = images.queue._endings._complete

    def completed(job: Any, *rest: Any) -> None:
        images.queue.shelf.erase(job)
        complete(job, *rest)
        ended.set()

    monkeypatch.setattr(images.queue._endings, "_complete", completed)
    answer = ask(images)
    assert ended.wait(DEADLINE)
    assert answer.status_code == 200
    assert "iVBORw0KGgo" in answer.text


@pytest.mark.parametrize("body", [{}, {"stream": True}])
def test_a_disk_that_fails_keeps_nobody_waiting(
    images: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(parts: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    ask(images, **body)
    with monkeypatch.context() as patch:
        patch.setattr("stowplan_agent.serving.images.opened", broken)
        assert ask(images, **body).status_code == 500
    (job,) = images.queue.shelf._jobs.values()
    assert job._followers == 0
    assert ask(images, **body).headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("body", [{}, {"stream": True}])
def test_what_makes_room_while_it_is_asked_for_again_is_made_again(
    images: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(images, **body)
    opened: list[Path] = []

    def gone(parts: Any) -> Any:
        if not opened:
            opened.extend(parts)
            for path in parts:
                path.unlink()
        return contents.opened(parts)

    monkeypatch.setattr("stowplan_agent.serving.images.opened", gone)
    again = ask(images, **body)
    assert again.status_code == 200
    assert "iVBORw0KGgo" in again.text
    assert (made(images), len(opened)) == (2, 1)
