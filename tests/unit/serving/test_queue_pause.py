"""A queue that pauses begins nothing, forgets nothing, and knows when nothing runs any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import GenerationRequest

DEADLINE = 20.0


def request(prompt: str) -> GenerationRequest:
    return GenerationRequest("image", prompt, None, 32, 32, 1, 4, 1, None)


@pytest.fixture
def queue(pipeline: Any) -> Iterator[RequestQueue]:
    queue = RequestQueue(limit=4)
    queue.open(pipeline.run, lambda _: None)
    yield queue
    pipeline.release()
    assert queue.stop(DEADLINE)


def test_what_waits_is_served_after_the_pause(queue: RequestQueue, pipeline: Any) -> None:
    assert queue.pause(DEADLINE)
    job = queue.submit(request("waits"))
    assert not job.wait(0.05)
    assert (job.status, queue.waiting) == ("queued", 1)
    queue.resume()
    assert job.wait(DEADLINE)
    assert job.error is None


def test_a_pause_waits_for_the_request_that_runs(queue: RequestQueue, pipeline: Any) -> None:
    pipeline.hold()
    running = queue.submit(request("runs"))
    assert pipeline.begun("runs").wait(DEADLINE)
    after = queue.submit(request("after"))
    assert not queue.pause(0.01)
    pipeline.release()
    assert queue.pause(DEADLINE)
    assert running.wait(DEADLINE)
    assert not after.done
    queue.resume()
    assert after.wait(DEADLINE)


def test_a_paused_queue_stops_like_any_other(pipeline: Any) -> None:
    queue = RequestQueue()
    queue.open(pipeline.run, lambda _: None)
    assert queue.pause(DEADLINE)
    job = queue.submit(request("never"))
    assert queue.stop(DEADLINE)
    assert job.error is not None and job.error.code == "stopping"
