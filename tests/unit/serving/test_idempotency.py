"""A key makes many attempts one request: run once, answered alike; another body with it is a mistake."""

from __future__ import annotations

import socket
import threading
from typing import Any

import httpx

DEADLINE = 20.0
KEY = {"Idempotency-Key": "k1"}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_video_with_a_key_is_made_once(videos: Any) -> None:
    first, again = (videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY) for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert videos.finished(first.json()["id"])["status"] == "completed"
    assert videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY).json()["status"] == "completed"
    other = videos.client.post("/v1/videos", json={"prompt": "a"}, headers={"Idempotency-Key": "k2"})
    assert other.json()["id"] != first.json()["id"]


def test_images_with_a_key_are_made_once_and_answered_alike(images: Any) -> None:
    sent = {"json": {"prompt": "a", "n": 2, "seed": None}, "headers": KEY}
    first, again = (images.client.post("/v1/images/generations", **sent) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert 'stowplan_requests_total{status="completed"} 1.0' in images.client.get("/metrics").text


def test_a_key_with_another_body_is_refused(videos: Any) -> None:
    videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY)
    answer = videos.client.post("/v1/videos", json={"prompt": "b"}, headers=KEY)
    assert error(answer) == (422, "idempotency_key_reused")
    assert "'k1' came with another request before" in answer.json()["error"]["message"]


def test_a_key_of_a_failed_request_is_free_again(videos: Any) -> None:
    videos.pipeline.errors["a"] = RuntimeError("no")
    first = videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY).json()["id"]
    assert videos.finished(first)["status"] == "failed"
    again = videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY).json()["id"]
    assert again != first
    assert videos.finished(again)["status"] == "completed"


def test_a_key_goes_with_its_result(videos: Any) -> None:
    first = videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY).json()["id"]
    videos.finished(first)
    videos.client.delete(f"/v1/videos/{first}")
    assert videos.client.post("/v1/videos", json={"prompt": "a"}, headers=KEY).json()["id"] != first


def test_a_second_attempt_keeps_the_work_when_the_first_hangs_up(images: Any) -> None:
    images.pipeline.hold()
    body = b'{"prompt": "once"}'
    head = (
        f"POST /v1/images/generations HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nIdempotency-Key: k1\r\n\r\n"
    )
    answers: list[httpx.Response] = []

    def again() -> None:
        answers.append(images.client.post("/v1/images/generations", json={"prompt": "once"}, headers=KEY))

    with socket.create_connection(("127.0.0.1", images.port)) as connection:
        connection.sendall(head.encode() + body)
        assert images.pipeline.begun("once").wait(DEADLINE)
        second = threading.Thread(target=again)
        second.start()
        pause = threading.Event()
        while images.client.get("/liveness").status_code == 200 and followers(images) < 2:
            pause.wait(0.01)
    while followers(images) > 1:
        pause.wait(0.01)
    images.pipeline.release()
    second.join(DEADLINE)
    assert [answer.status_code for answer in answers] == [200]
    assert answers[0].headers["idempotent-replayed"] == "true"


def followers(images: Any) -> int:
    """Clients that wait for the one job there is."""
    (job,) = images.queue.shelf._jobs.values()
    return int(job._followers)


def test_a_key_must_be_one(videos: Any) -> None:
    for key in ("", "k" * 256):
        answer = videos.client.post("/v1/videos", json={"prompt": "a"}, headers={"Idempotency-Key": key})
        assert error(answer) == (400, "invalid_value")
        assert answer.json()["error"]["param"] == "Idempotency-Key"
