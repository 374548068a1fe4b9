"""Videos in pages, cancelled and deleted; images by URL; deadlines."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx
import pytest

DEADLINE = 20.0


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def create(videos: Any, **body: Any) -> str:
    return str(videos.client.post("/v1/videos", json={"prompt": "a"} | body).json()["id"])


# Pages


def test_videos_are_listed_in_pages_newest_first(videos: Any) -> None:
    made = []
    for _ in range(3):
        made.append(create(videos))
        videos.finished(made[-1])
    first = videos.client.get("/v1/videos", params={"limit": 2}).json()
    assert [video["id"] for video in first["data"]] == made[:0:-1]
    assert (first["object"], first["has_more"], first["first_id"], first["last_id"]) == ("list", True, made[2], made[1])
    for video in made[1:]:  # as scripts that clean up do: the page goes on behind what is gone
        videos.client.delete(f"/v1/videos/{video}")
    rest = videos.client.get("/v1/videos", params={"after": first["last_id"]}).json()
    assert ([video["id"] for video in rest["data"]], rest["has_more"]) == (made[:1], False)
    oldest = videos.client.get("/v1/videos", params={"order": "asc", "after": made[0]}).json()
    assert (oldest["data"], oldest["first_id"], oldest["last_id"]) == ([], None, None)


@pytest.mark.parametrize(
    ("query", "param"), [({"limit": 0}, "limit"), ({"limit": "x"}, "limit"), ({"order": "size"}, "order")]
)
def test_a_bad_page_is_refused_in_openais_form(videos: Any, query: dict[str, Any], param: str) -> None:
    answer = videos.client.get("/v1/videos", params=query)
    assert error(answer) == (400, "invalid_value")
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["message"].startswith(f"{param} is ")


# Cancelling and deleting


def test_cancelling_ends_what_waits_at_once_and_what_runs_after_its_step(videos: Any) -> None:
    videos.pipeline.hold()
    runs, waits = create(videos, prompt="runs", steps=20), create(videos, prompt="waits")
    assert videos.pipeline.begun("runs").wait(DEADLINE)
    answer = videos.client.post(f"/v1/videos/{waits}/cancel").json()
    assert (answer["status"], answer["error"]["code"]) == ("failed", "cancelled")
    assert videos.client.post(f"/v1/videos/{runs}/cancel").json()["status"] == "in_progress"
    videos.pipeline.release()
    assert videos.finished(runs)["error"]["code"] == "cancelled"
    assert videos.client.post(f"/v1/videos/{runs}/cancel").status_code == 200
    assert videos.pipeline.steps_run == {"runs": 1}


def test_what_is_completed_cannot_be_cancelled(videos: Any) -> None:
    video = create(videos)
    videos.finished(video)
    assert error(videos.client.post(f"/v1/videos/{video}/cancel")) == (409, "already_completed")
    assert videos.client.get(f"/v1/videos/{video}/content").status_code == 200


def test_deleting_a_video_deletes_its_file(videos: Any) -> None:
    video = create(videos)
    videos.finished(video)
    assert videos.queue.shelf.held_bytes > 0
    videos.client.delete(f"/v1/videos/{video}")
    assert videos.queue.shelf.held_bytes == 0
    assert error(videos.client.get(f"/v1/videos/{video}/content")) == (404, "video_not_found")


# Images by URL


def test_images_by_url_are_fetched_from_there(images: Any) -> None:
    body = {"prompt": "a", "n": 2, "seed": 3}
    plain = images.client.post("/v1/images/generations", json=body).json()
    answer = images.client.post("/v1/images/generations", json=body | {"response_format": "url"}).json()
    urls = [image["url"] for image in answer["data"]]
    assert all(url.startswith(f"http://127.0.0.1:{images.port}/v1/images/") for url in urls)
    fetched = [images.client.get(url) for url in urls]
    assert {one.headers["content-type"] for one in fetched} == {"image/png"}
    assert fetched[0].headers["content-disposition"].endswith('-0.png"')
    assert [base64.b64encode(one.content).decode() for one in fetched] == [one["b64_json"] for one in plain["data"]]
    for wrong in (urls[0].replace("/0/", "/2/"), urls[0].replace("image_", "image_0")):
        assert error(images.client.get(wrong)) == (404, "image_not_found")
    assert error(images.client.get(urls[0].replace("/0/", "/first/"))) == (400, "invalid_value")


def test_images_that_made_room_are_not_found(images: Any) -> None:
    body = {"prompt": "a", "response_format": "url"}
    (url,) = [one["url"] for one in images.client.post("/v1/images/generations", json=body).json()["data"]]
    images.queue.shelf.most_bytes = images.queue.shelf.held_bytes
    images.client.post("/v1/images/generations", json=body)
    assert error(images.client.get(url)) == (404, "image_not_found")


def test_an_image_is_no_video(images: Any) -> None:
    body = {"prompt": "a", "response_format": "url"}
    (url,) = [one["url"] for one in images.client.post("/v1/images/generations", json=body).json()["data"]]
    image = url.split("/")[-3]
    assert images.client.get("/v1/videos").json()["data"] == []
    assert error(images.client.delete(f"/v1/videos/{image}")) == (404, "video_not_found")
    assert images.client.get(url).status_code == 200


# Deadlines


def test_a_request_that_waits_past_its_deadline_is_given_up(videos: Any) -> None:
    videos.pipeline.hold()
    create(videos, prompt="runs")
    late = create(videos, prompt="late", deadline=0.05)
    failed = videos.finished(late)
    assert failed["error"] == {
        "code": "deadline_exceeded",
        "message": "the request was not finished within 0.05 s, its deadline; allow more or ask for less",
    }
    videos.pipeline.release()
    assert "late" not in videos.pipeline.steps_run


def test_a_request_that_runs_past_its_deadline_ends_after_its_step(images: Any) -> None:
    images.pipeline.hold()
    answers: list[httpx.Response] = []
    body = {"prompt": "late", "steps": 20, "deadline": 0.05}
    client = threading.Thread(target=lambda: answers.append(images.client.post("/v1/images/generations", json=body)))
    client.start()
    assert images.pipeline.begun("late").wait(DEADLINE)
    pause = threading.Event()
    while not images.pipeline.cancelled():
        pause.wait(0.01)
    images.pipeline.release()
    client.join(DEADLINE)
    (answer,) = answers
    assert error(answer) == (408, "deadline_exceeded")
    assert answer.headers["x-should-retry"] == "false"
    assert images.pipeline.steps_run == {"late": 1}


def test_a_deadline_that_is_kept_is_forgotten(images: Any) -> None:
    answer = images.client.post("/v1/images/generations", json={"prompt": "a", "deadline": 3600})
    assert answer.status_code == 200


# The model


def test_the_model_by_its_name(videos: Any) -> None:
    assert videos.client.get("/v1/models/tiny-wan").json()["id"] == "tiny-wan"
    answer = videos.client.get("/v1/models/sora-2")
    assert error(answer) == (404, "model_not_found")
    assert "this server has tiny-wan" in answer.json()["error"]["message"]
