"""A job ends once, in one way: completed or cancelled, never both, and whoever cannot be told costs nobody else."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from stowplan_agent.serving import endings
from stowplan_agent.serving.attempt import serve_one
from stowplan_agent.serving.contents import Content
from stowplan_agent.serving.jobs import CANCELLED, Job, JobError
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import GenerationRequest

DEADLINE = 20.0
KEY = {"Idempotency-Key": "k1"}


def request(prompt: str = "a") -> GenerationRequest:
    return GenerationRequest("image", prompt, None, 32, 32, 1, 4, 1, None)


def test_what_is_to_be_cancelled_is_not_completed_and_what_is_completed_is_not_cancelled() -> None:
    first, second = (Job(request(), 0, lambda _: None) for _ in range(2))
    first.cancel()
    assert not first.complete(1, Content(()))
    assert not first.done
    assert first.fail(1, CANCELLED)
    assert second.complete(1, Content(()))
    second.cancel()
    assert (second.cancelled, second.status) == (None, "completed")


def test_it_is_counted_before_anybody_is_told() -> None:
    told: list[str] = []
    for end in (
        lambda job: job.complete(1, Content(()), first=lambda: told.append(f"counted {job.done}")),
        lambda job: job.fail(1, CANCELLED, first=lambda: told.append(f"counted {job.done}")),
    ):
        one = Job(request(), 0, lambda _: None)
        one.when_done(lambda: told.append("told"))
        assert end(one)
        assert not end(one)
    assert told == ["counted False", "told"] * 2


def test_what_is_in_hand_is_there_for_whoever_comes_until_the_last_has_left() -> None:
    one = Job(request(), 0, lambda _: None, kept=True, handed=True)
    assert one.complete(1, Content(()), [b"made"])
    assert one.follow() and one.follow()
    one.leave()
    assert one.in_hand == (b"made",)
    one.leave()
    assert one.in_hand == ()


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An encoder that stands still in each task until ``go``; ``calls`` counts them, ``at`` is set in the first."""
    encoded = endings.encoded

    class Held:
        calls = 0
        at, go = threading.Event(), threading.Event()

        def __call__(self, *args: Any) -> Any:
            self.calls += 1
            self.at.set()
            assert self.go.wait(DEADLINE)
            return encoded(*args)

    held = Held()
    monkeypatch.setattr(endings, "encoded", held)
    return held


def test_what_is_cancelled_while_it_is_encoded_stays_so_and_its_key_runs_again_once(videos: Any, encoder: Any) -> None:
    sent = {"json": {"prompt": "a"}, "headers": KEY}
    first = videos.client.post("/v1/videos", **sent).json()["id"]
    assert encoder.at.wait(DEADLINE)
    assert videos.client.post(f"/v1/videos/{first}/cancel").status_code == 200
    again = videos.client.post("/v1/videos", **sent).json()["id"]
    encoder.go.set()
    assert videos.finished(first)["error"]["code"] == "cancelled"
    assert videos.finished(again)["status"] == "completed"
    assert videos.client.post("/v1/videos", **sent).json()["id"] == again
    assert videos.queue.wait_until_idle(DEADLINE)
    assert videos.client.post(f"/v1/videos/{again}/cancel").status_code == 409
    assert videos.client.post("/v1/videos", **sent).json()["id"] == again


def test_what_is_cancelled_before_it_is_encoded_never_is(pipeline: Any, encoder: Any) -> None:
    queue = RequestQueue(pipeline.run)
    first = queue.submit(request("first"))
    assert encoder.at.wait(DEADLINE)
    second = queue.submit(request("second"))
    assert pipeline.begun("second").wait(DEADLINE)
    second.cancel()
    encoder.go.set()
    assert first.wait(DEADLINE)
    assert second.wait(DEADLINE)
    assert (first.status, second.error, encoder.calls) == ("completed", CANCELLED, 1)
    assert queue.stop(DEADLINE)


def test_a_follower_that_fails_stops_neither_the_others_nor_the_worker(pipeline: Any) -> None:
    queue, told = RequestQueue(pipeline.run), []
    pipeline.hold()
    pipeline.errors["a"] = RuntimeError("no")
    job = queue.submit(request())

    def broken() -> None:
        raise OSError("read-only")

    for follow in (job.when_done, job.watch):
        follow(broken)
        follow(lambda: told.append(job.done))
    pipeline.release()
    assert job.wait(DEADLINE)
    assert queue.wait_until_idle(DEADLINE)
    assert told[-2:] == [True, True]
    after = queue.submit(request("after"))
    assert after.wait(DEADLINE)
    assert after.status == "completed"
    assert queue.stop(DEADLINE)


def test_a_job_that_cannot_be_ended_as_it_should_is_ended_all_the_same(pipeline: Any) -> None:
    told: list[str] = []

    class Endings:
        def finish(self, job: Job, result: object) -> None:
            raise RuntimeError("no")

        def fail(self, job: Job, error: JobError) -> None:
            told.append(error.message)
            if len(told) == 1:
                raise OSError("read-only")

    serve_one(pipeline.run, pipeline.recover, Job(request(), 0, lambda _: None), cast(Any, Endings()))
    assert told == [
        "the pipeline failed with RuntimeError: no",
        "the server failed with OSError; its log has the details",
    ]
