"""Stopping waits for exactly those who are still owed something: answers on their way, results not fetched yet."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.agent import Agent
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.serving.contents import Content
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.drain import AFTERWARDS, drain
from stowplan_agent.serving.jobs import CANCELLED, Job, JobError
from stowplan_agent.serving.outgoing import PIECE, CountAnswers, Outgoing
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import GenerationRequest, Kind
from stowplan_agent.serving.shelf import Shelf
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

DEADLINE = 20.0


def job(kind: Kind) -> Job:
    return Job(GenerationRequest(kind, "a", None, 32, 32, 1, 4, 1, None), 0, lambda _: None, kept=True)


# Results


@pytest.mark.parametrize(
    ("kind", "error", "owed"),
    [
        ("video", None, True),
        ("video", JobError("failed", "no"), True),
        ("video", JobError("deadline_exceeded", "late"), True),
        ("video", CANCELLED, False),  # by its own client
        ("image", None, True),  # by URL
        ("image", JobError("failed", "no"), False),  # its client was told while it waited
        ("image", CANCELLED, False),  # its client hung up
    ],
)
def test_who_is_waited_for(kind: Kind, error: JobError | None, owed: bool) -> None:
    shelf, one = Shelf(), job(kind)
    shelf.put(one)
    assert not shelf.wait_until_collected(since=0, timeout=0)
    if error is None:
        one.complete(1, Content((b"",)))
    else:
        one.fail(1, error)
    assert shelf.wait_until_collected(since=0, timeout=0) is not owed


def test_a_failed_video_whose_client_asks_to_cancel_it_was_collected(videos: Any) -> None:
    videos.pipeline.errors["a"] = RuntimeError("no")
    video = videos.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]
    assert videos.queue.wait_until_idle(DEADLINE)
    assert not videos.queue.shelf.wait_until_collected(0, 0)
    assert videos.client.post(f"/v1/videos/{video}/cancel").json()["status"] == "failed"
    assert videos.queue.shelf.wait_until_collected(0, 0)


def test_images_by_url_are_collected_when_the_last_was_fetched(images: Any) -> None:
    body = {"prompt": "a", "n": 2, "response_format": "url"}
    data = images.client.post("/v1/images/generations", json=body).json()["data"]
    shelf = images.queue.shelf
    for one in data:
        assert not shelf.wait_until_collected(0, 0)
        assert images.client.get(one["url"]).status_code == 200
        assert images.client.get(data[0]["url"]).status_code == 200
    assert shelf.wait_until_collected(0, DEADLINE)


# Answers


def test_a_drain_waits_for_answers_on_their_way(pipeline: Any) -> None:
    queue, outgoing, settled = RequestQueue(pipeline.run), Outgoing(), []
    outgoing.begin()
    draining = threading.Thread(
        target=lambda: settled.append(drain(Door(), queue, AFTERWARDS + DEADLINE, outgoing=outgoing))
    )
    draining.start()
    draining.join(0.3)
    assert not settled
    outgoing.end()
    draining.join(DEADLINE)
    assert settled == [True]


async def answered(outgoing: Outgoing, received: list[Message], body: bytes) -> list[Message]:
    """What a server sends whose application reads its request and answers with ``body``; each piece is owed."""
    out: list[Message] = []
    coming = iter(received)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            assert outgoing.wait_until_sent(0), "half a request is owed nothing"
        assert not outgoing.wait_until_sent(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def receive() -> Message:
        return next(coming)

    async def send(message: Message) -> None:
        assert not outgoing.wait_until_sent(0)
        out.append(message)

    await CountAnswers(app, outgoing)({"type": "http"}, receive, send)
    assert outgoing.wait_until_sent(0)
    return out


@pytest.mark.parametrize(("size", "pieces"), [(0, 1), (PIECE, 1), (PIECE + 1, 3), (3 * PIECE, 4)])
def test_an_answer_is_owed_until_its_last_piece_was_taken(size: int, pieces: int) -> None:
    halves = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]
    body = bytes(range(251)) * (size // 251 + 1)
    _, *out = asyncio.run(answered(Outgoing(), halves, body[:size]))
    assert (b"".join(one["body"] for one in out), len(out)) == (body[:size], pieces)
    assert [one.get("more_body", False) for one in out] == [True] * (pieces - 1) + [False]


# Between two placements


def test_stopped_between_two_placements_what_waits_is_told_so(pipeline: Any) -> None:
    spec = DiffusionDeploymentSpec.model_validate(
        {
            "model": {"source": "hf://a/b"},
            "workload": {"shapes": [{"name": "still", "width": 256, "height": 256, "steps": 2}]},
            "resources": {"memory": "8Gi"},
        }
    )
    agent, jobs = Agent(StartSettings(spec, "emulated", disabled=True), None), []
    agent.queue.open(pipeline.run, lambda _: None)
    agent.door.open_up()

    def recall() -> None:
        one = agent.queue.submit(job("video").request)
        one.when_done(lambda: agent.queue.shelf.collect(one))
        jobs.append(one)
        raise Stopped

    with pytest.raises(Stopped):
        agent._until_stopped(cast(Any, SimpleNamespace(serves_a_plan=True, recall=recall)), cast(Any, None))
    assert [one.error.code for one in jobs if one.error] == ["stopping"]
    assert (agent.door.open, agent.queue.is_shut, pipeline.steps_run) == (False, True, {})
