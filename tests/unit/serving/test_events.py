"""Following a request step by step, and what becomes of one whose client stops following."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from stowplan_agent.serving import waiting
from stowplan_agent.serving.jobs import Job
from stowplan_agent.serving.requests import GenerationRequest

DEADLINE = 20.0


def events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and data of each event, as they come."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_video_is_followed_to_its_end(videos: Any) -> None:
    videos.pipeline.hold()
    video = videos.client.post("/v1/videos", json={"prompt": "a", "steps": 4}).json()["id"]
    with videos.client.stream("GET", f"/v1/videos/{video}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        told = events(answer)
        name, first = next(told)
        assert (name, first["type"], first["id"], first["progress"]) == ("video.progress", name, video, 0)
        videos.pipeline.release()
        rest = list(told)
    assert [name for name, _ in rest][-1] == "video.completed"
    assert rest[-1][1]["progress"] == 100
    assert rest[-1][1]["step"] == 4
    progress = [data["progress"] for _, data in rest]
    assert progress == sorted(progress)


def test_following_what_has_ended_says_so_at_once(videos: Any) -> None:
    videos.pipeline.errors["a"] = RuntimeError("no")
    video = videos.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]
    videos.finished(video)
    with videos.client.stream("GET", f"/v1/videos/{video}/events") as answer:
        ((name, data),) = events(answer)
    assert (name, data["error"]["code"]) == ("video.failed", "failed")


def test_silence_is_broken_by_comments(videos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "BEAT", 0.0)
    videos.pipeline.hold()
    video = videos.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]
    with videos.client.stream("GET", f"/v1/videos/{video}/events") as answer:
        lines = answer.iter_lines()
        assert any(line == ": nothing has changed" for line in lines)
        videos.pipeline.release()
        assert any(line == "event: video.completed" for line in lines)


def test_images_come_after_their_steps(images: Any) -> None:
    plain = images.client.post("/v1/images/generations", json={"prompt": "a", "n": 2, "seed": 3}).json()
    body = {"prompt": "a", "n": 2, "seed": 3, "stream": True}
    with images.client.stream("POST", "/v1/images/generations", json=body) as answer:
        told = list(events(answer))
    made = [data for name, data in told if name == "image_generation.completed"]
    assert [one["b64_json"] for one in made] == [one["b64_json"] for one in plain["data"]]
    assert base64.b64decode(made[0]["b64_json"]).startswith(b"\x89PNG")
    assert {one["seed"] for one in made} == {3}
    steps = [data for name, data in told if name == "image_generation.progress"]
    assert len(steps) + 2 == len(told)
    assert all(one["steps"] == 8 for one in steps)


def test_images_that_fail_say_why_where_openai_has_it(images: Any) -> None:
    images.pipeline.errors["a"] = RuntimeError("no")
    with images.client.stream("POST", "/v1/images/generations", json={"prompt": "a", "stream": True}) as answer:
        assert answer.status_code == 200
        name, data = list(events(answer))[-1]
    assert (name, data["error"]["code"], data["error"]["type"]) == ("error", "failed", "server_error")


def test_a_client_that_stops_following_images_stops_them(images: Any) -> None:
    images.pipeline.hold()
    body = {"prompt": "left", "steps": 20, "stream": True}
    with images.client.stream("POST", "/v1/images/generations", json=body) as answer:
        told = events(answer)  # kept: a generator that is dropped hangs up
        assert next(told)[0] == "image_generation.progress"
        assert images.pipeline.begun("left").wait(DEADLINE)
    pause = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if images.pipeline.cancelled():
            break
        pause.wait(0.02)
    images.pipeline.release()
    assert images.client.post("/v1/images/generations", json={"prompt": "next"}).status_code == 200
    assert images.pipeline.steps_run["left"] == 1


def test_a_client_that_stops_following_a_video_stops_nothing(videos: Any) -> None:
    videos.pipeline.hold()
    video = videos.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]
    with videos.client.stream("GET", f"/v1/videos/{video}/events") as answer:
        next(events(answer))
    videos.pipeline.release()
    assert videos.finished(video)["status"] == "completed"


def test_a_change_that_comes_while_an_event_is_sent_is_told_next() -> None:
    job = Job(GenerationRequest("video", "a", None, 32, 32, 5, 10, 1, None), 0, lambda _: None)

    async def here() -> bool:
        return False

    async def follow() -> list[int]:
        told = []
        async for changed in waiting.changes(job, here):
            assert changed
            told.append(job.step)
            if job.step == 2:
                return told
            job.poll()  # while the event goes out
            await asyncio.sleep(0)
        raise AssertionError("it has not ended")

    assert asyncio.run(asyncio.wait_for(follow(), DEADLINE)) == [0, 1, 2]
