"""The official client, as people use it: images, videos, progress, cancelling, and errors that say what to do."""

from __future__ import annotations

import base64
import io
import threading
from typing import Any

import av
import httpx
import openai
import pytest
from openai.types import Video
from PIL import Image

from serving.agents import DEADLINE, ServedAgent

pytestmark = pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning")


def until(holds: Any) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError("it never came to that")


# Images


def test_images(image_agent: ServedAgent) -> None:
    client = image_agent.openai()
    made = client.images.generate(prompt="a red kite", n=2, size="64x32", extra_body={"seed": 5, "steps": 1})
    assert made.size == "64x32"
    assert made.data is not None
    pictures = [Image.open(io.BytesIO(base64.b64decode(image.b64_json or ""))) for image in made.data]
    assert [picture.size for picture in pictures] == [(64, 32)] * 2
    again = client.images.generate(prompt="a red kite", n=1, size="64x32", extra_body={"seed": 6, "steps": 1})
    assert again.data is not None
    assert again.data[0].b64_json == made.data[1].b64_json


def test_images_by_url(image_agent: ServedAgent) -> None:
    made = image_agent.openai().images.generate(prompt="a", response_format="url", extra_body={"seed": 1})
    assert made.data is not None and made.data[0].url is not None
    fetched = httpx.get(made.data[0].url, trust_env=False)
    assert Image.open(io.BytesIO(fetched.content)).size == (64, 64)
    inline = image_agent.openai().images.generate(prompt="a", extra_body={"seed": 1})
    assert inline.data is not None
    assert base64.b64decode(inline.data[0].b64_json or "") == fetched.content


def test_images_step_by_step(image_agent: ServedAgent) -> None:
    image_agent.gate.hold()
    told = image_agent.openai().images.generate(prompt="a", stream=True, extra_body={"steps": 4})
    seen: list[Any] = []
    for event in told:
        seen.append(event)
        if seen[-1].type == "image_generation.progress" and seen[-1].status == "in_progress":
            image_agent.gate.release()
    steps = [event.step for event in seen[:-1]]
    assert steps == sorted(steps)
    assert {event.steps for event in seen[:-1]} == {4}
    assert seen[-1].type == "image_generation.completed"
    assert base64.b64decode(seen[-1].b64_json).startswith(b"\x89PNG")


def test_a_client_that_gives_up_stops_its_images(image_agent: ServedAgent) -> None:
    image_agent.gate.hold()
    with pytest.raises(openai.APITimeoutError):
        image_agent.openai(timeout=0.5).images.generate(prompt="a", extra_body={"steps": 50})
    assert image_agent.gate.at.wait(DEADLINE)
    (job,) = image_agent.queue._open
    until(lambda: job.cancelled)
    image_agent.gate.release()
    assert job.wait(DEADLINE)
    assert (job.error and job.error.code, job.step) == ("cancelled", 1)
    assert image_agent.openai().images.generate(prompt="a").data


# Videos


def test_a_video_from_its_making_to_its_end(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    made = client.videos.create_and_poll(
        prompt="a boat",
        size="32x32",
        extra_body={"frames": 5, "seed": 3},
        poll_interval_ms=50,  # type: ignore[arg-type]
    )
    assert (made.status, made.progress, made.model, made.error) == ("completed", 100, "tiny-wan", None)
    content = client.videos.download_content(made.id).read()
    frames = [frame.to_ndarray(format="rgb24") for frame in av.open(io.BytesIO(content)).decode(video=0)]
    assert (len(frames), frames[0].shape) == (5, (32, 32, 3))
    assert client.videos.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError, match="is not here"):
        client.videos.retrieve(made.id)


def test_seconds_as_the_client_sends_them(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    made = client.videos.create(prompt="a", seconds="0.3", extra_body={"steps": 1})  # type: ignore[arg-type]
    assert (made.seconds, client.videos.poll(made.id, poll_interval_ms=50).status) == ("0.3125", "completed")


def test_progress_is_seen_and_cancelling_ends_within_a_step(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    video_agent.gate.hold()
    runs = client.videos.create(prompt="a", extra_body={"steps": 20})
    waits = client.videos.create(prompt="b")
    assert video_agent.gate.at.wait(DEADLINE)
    seen = client.videos.retrieve(runs.id)
    assert (seen.status, seen.progress) == ("in_progress", 0)
    assert client.videos.retrieve(waits.id).status == "queued"
    client.post(f"/videos/{waits.id}/cancel", cast_to=Video)
    ended = client.videos.retrieve(waits.id)
    assert (ended.status, ended.error and ended.error.code) == ("failed", "cancelled")
    client.post(f"/videos/{runs.id}/cancel", cast_to=Video)
    video_agent.gate.release()
    ended = client.videos.poll(runs.id, poll_interval_ms=50)
    assert (ended.status, ended.error and ended.error.code) == ("failed", "cancelled")
    assert ended.progress == 5
    with pytest.raises(openai.ConflictError, match="has no content: the request was cancelled"):
        client.videos.download_content(runs.id)


def test_a_video_is_followed_step_by_step(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    made = client.videos.create(prompt="a", extra_body={"steps": 5})
    with httpx.stream("GET", f"{video_agent.url}/v1/videos/{made.id}/events", trust_env=False) as answer:
        names = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert names[-1] == "event: video.completed"
    assert set(names[:-1]) <= {"event: video.progress"}


def test_the_list_turns_its_own_pages(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    for video in client.videos.list(limit=2):
        client.videos.delete(video.id)
    made = [client.videos.create(prompt="a", extra_body={"steps": 1, "frames": 1}).id for _ in range(3)]
    assert video_agent.idle()
    assert [video.id for video in client.videos.list(limit=1)] == made[::-1]
    assert [video.id for video in client.videos.list(limit=2, order="asc")] == made
    for video in client.videos.list(limit=1):
        client.videos.delete(video.id)
    assert list(client.videos.list()) == []
    assert video_agent.files() == []


def test_one_key_is_one_video(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    key = {"Idempotency-Key": "only-once"}
    first, again = (client.videos.create(prompt="a", extra_headers=key) for _ in range(2))
    assert first.id == again.id
    with pytest.raises(openai.UnprocessableEntityError, match="use a key for each"):
        client.videos.create(prompt="b", extra_headers=key)


# The queue, and errors


def test_a_full_queue_says_how_full_and_when_to_come_back(video_agent: ServedAgent) -> None:
    client = video_agent.openai()
    video_agent.gate.hold()
    client.videos.create(prompt="runs")
    assert video_agent.gate.at.wait(DEADLINE)
    waiting = [client.videos.create(prompt="waits") for _ in range(video_agent.queue.limit)]
    with pytest.raises(openai.RateLimitError) as caught:
        client.videos.create(prompt="too many")
    assert caught.value.code == "queue_full"
    assert "4 requests are waiting and the queue holds 4; try again in about 1 s" in caught.value.message
    assert caught.value.response.headers["retry-after"] == "1"
    client.videos.delete(waiting[0].id)
    threading.Timer(0.1, video_agent.gate.release).start()
    patient = video_agent.openai(max_retries=5)  # comes back by itself, when it was told to
    assert patient.videos.poll(patient.videos.create(prompt="a").id, poll_interval_ms=50).status == "completed"


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"size": "33x32"}, "size", "is not made of multiples of 16 pixels; 32x32 would do"),
        ({"size": "big"}, "size", "is not WIDTHxHEIGHT in pixels, such as 32x32"),
        ({"extra_body": {"frames": 6}}, "frames", "is not a multiple of 4 plus 1; 5 or 9 would do"),
        ({"extra_body": {"stepz": 6}}, "stepz", "this route takes prompt"),
        ({"extra_body": {"input_reference": "x"}}, "input_reference", "made of their prompt alone here"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(video_agent: ServedAgent, fields: Any, param: str, says: str) -> None:
    with pytest.raises(openai.BadRequestError, match=says) as caught:
        video_agent.openai().videos.create(prompt="a", **fields)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")


def test_what_was_never_measured_is_refused_with_its_numbers(image_agent: ServedAgent) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="1048576 pixels") as caught:
        image_agent.openai().images.generate(prompt="a", size="1024x1024")
    assert caught.value.code == "does_not_fit"


def test_models(image_agent: ServedAgent) -> None:
    client = image_agent.openai()
    assert [model.id for model in client.models.list()] == ["tiny-flux"]
    assert client.models.retrieve("tiny-flux").owned_by == "stowplan"
    with pytest.raises(openai.NotFoundError, match="this server has 'tiny-flux'"):
        client.images.generate(prompt="a", model="dall-e-3")


# Residency


def test_residency_of_an_agent_that_serves(image_agent: ServedAgent) -> None:
    shown = httpx.get(f"{image_agent.url}/residency", trust_env=False).json()
    assert shown["phase"] == shown["status"]["phase"] == "Ready"
    assert {one["name"] for one in shown["placement"]["components"]} >= {"transformer", "vae"}
    assert shown["record"]["model"]["pipeline"] == "FluxPipeline"
    page = httpx.get(f"{image_agent.url}/residency", headers={"Accept": "text/html"}, trust_env=False)
    assert page.text.startswith("<!DOCTYPE html>")
    assert "transformer" in page.text
