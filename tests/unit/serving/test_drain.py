"""Stopping: what was begun ends or fails aloud within the grace period, and whoever made a video can still fetch it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from stowplan_agent.serving.door import Door
from stowplan_agent.serving.drain import AFTERWARDS, drain
from stowplan_agent.serving.queue import Closed, RequestQueue
from stowplan_agent.serving.requests import GenerationRequest

DEADLINE = 20.0
PLENTY = AFTERWARDS + DEADLINE


def request(prompt: str = "a", kind: Any = "image") -> GenerationRequest:
    return GenerationRequest(kind, prompt, None, 32, 32, 1 if kind == "image" else 5, 4, 1, None)


class Draining:
    """A drain that runs beside the test."""

    def __init__(
        self, door: Door, queue: RequestQueue, grace: float, hurry: Callable[[], bool] = lambda: False
    ) -> None:
        self.settled: list[bool] = []
        self._thread = threading.Thread(target=lambda: self.settled.append(drain(door, queue, grace, hurry=hurry)))
        self._thread.start()

    def ended(self) -> bool:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        return self.settled[0]


def until_shut(queue: RequestQueue) -> None:
    pause = threading.Event()
    while not queue.is_shut:
        pause.wait(0.01)


def test_what_runs_and_what_waits_is_finished_and_nothing_more_is_taken(pipeline: Any) -> None:
    door, queue = Door(), RequestQueue(pipeline.run)
    door.open_up()
    pipeline.hold()
    jobs = [queue.submit(request("runs")), queue.submit(request("waits"))]
    draining = Draining(door, queue, PLENTY)
    until_shut(queue)
    with pytest.raises(Closed, match="stopping"):
        queue.submit(request("late"))
    assert not door.open
    pipeline.release()
    assert draining.ended()
    assert [job.status for job in jobs] == ["completed"] * 2


def test_what_does_not_end_in_time_fails_and_says_to_send_it_again(pipeline: Any) -> None:
    queue = RequestQueue(pipeline.run)
    pipeline.hold()
    jobs = [queue.submit(request("runs")), queue.submit(request("waits"))]
    assert pipeline.begun("runs").wait(DEADLINE)
    threading.Timer(0.1, pipeline.release).start()  # its step ends after the time is over, which ends the job
    assert not drain(Door(), queue, AFTERWARDS)
    assert [job.error.code for job in jobs if job.error] == ["stopping"] * 2
    assert pipeline.steps_run == {"runs": 1}
    assert "send it again" in jobs[0].error.message  # type: ignore[union-attr]


def test_a_second_signal_waits_for_nobody(pipeline: Any) -> None:
    queue, hurry = RequestQueue(pipeline.run), threading.Event()
    pipeline.hold()
    job = queue.submit(request("runs"))
    draining = Draining(Door(), queue, 3600, hurry.is_set)
    until_shut(queue)
    hurry.set()
    assert job.wait(DEADLINE)
    pipeline.release()
    assert not draining.ended()
    assert job.error is not None and job.error.code == "stopping"


def test_a_video_is_waited_for_until_it_was_fetched(videos: Any) -> None:
    videos.pipeline.hold()
    done, runs = (videos.client.post("/v1/videos", json={"prompt": prompt}).json()["id"] for prompt in ("done", "runs"))
    draining = Draining(videos.door, videos.queue, PLENTY)
    until_shut(videos.queue)
    answer = videos.client.post("/v1/videos", json={"prompt": "late"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
    videos.pipeline.release()
    for video in (done, runs):
        assert videos.finished(video)["status"] == "completed"
        assert not draining.settled
        assert videos.client.get(f"/v1/videos/{video}/content").status_code == 200
    assert draining.ended()


def test_a_video_that_nobody_fetches_is_given_up_with_the_grace_period(videos: Any) -> None:
    videos.client.post("/v1/videos", json={"prompt": "forgotten"})
    assert not drain(videos.door, videos.queue, AFTERWARDS + 0.2)
    assert videos.queue.wait_until_idle(0)


def test_a_client_that_waits_hears_what_became_of_its_request(images: Any) -> None:
    images.pipeline.hold()
    answers: dict[str, httpx.Response] = {}

    def ask(prompt: str) -> None:
        answers[prompt] = images.client.post("/v1/images/generations", json={"prompt": prompt})

    clients = [threading.Thread(target=ask, args=(prompt,)) for prompt in ("first", "second")]
    clients[0].start()
    assert images.pipeline.begun("first").wait(DEADLINE)
    clients[1].start()
    pause = threading.Event()
    while images.queue.waiting != 1:
        pause.wait(0.01)
    draining = Draining(images.door, images.queue, AFTERWARDS)
    for client in clients:
        client.join(DEADLINE)
    images.pipeline.release()
    assert not draining.ended()
    for answer in answers.values():
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
        assert answer.headers["retry-after"] == "1"
