"""The HTTP contract, over a real port: an API people already speak."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
from typing import Any

import av
import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from stowplan_agent.serving.app import create_app
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.requests import GenerationRequest, Refused
from stowplan_agent.serving.server import ServerError, listen, start_server

DEADLINE = 20.0


def error(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])


def until(what: str, holds: Any) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError(f"never happened: {what}")


# Images


def test_images_are_real_pngs_of_the_size_asked_for(images: Any) -> None:
    answer = images.client.post("/v1/images/generations", json={"prompt": "a", "n": 2, "size": "96x64", "seed": 3})
    assert answer.status_code == 200
    body = answer.json()
    assert body["size"] == "96x64" and body["seed"] == 3
    pictures = [Image.open(io.BytesIO(base64.b64decode(item["b64_json"]))) for item in body["data"]]
    assert [picture.size for picture in pictures] == [(96, 64)] * 2
    assert np.asarray(pictures[0])[0, 90].tolist() == [111, 230 - 111, 40 + 55]
    assert np.asarray(pictures[0]).tolist() != np.asarray(pictures[1]).tolist()


def test_a_drawn_seed_is_returned_and_repeats_the_image(images: Any) -> None:
    first = images.client.post("/v1/images/generations", json={"prompt": "a"}).json()
    again = images.client.post("/v1/images/generations", json={"prompt": "a", "seed": first["seed"]}).json()
    assert first["seed"] == 7 and first["data"] == again["data"]


def test_a_client_that_hangs_up_stops_its_request_and_the_next_one_runs(images: Any) -> None:
    images.pipeline.hold()
    body = json.dumps({"prompt": "left", "steps": 20}).encode()
    head = f"POST /v1/images/generations HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", images.port)) as connection:
        connection.sendall(head + body)
        assert images.pipeline.begun("left").wait(DEADLINE)
    assert images.client.get("/liveness", timeout=5).status_code == 200
    until("the pipeline is asked to stop", images.pipeline.cancelled)
    images.pipeline.release()
    after = images.client.post("/v1/images/generations", json={"prompt": "next"})
    assert after.status_code == 200
    assert images.pipeline.steps_run["left"] == 1
    assert 'stowplan_requests_total{status="cancelled"} 1.0' in images.client.get("/metrics").text


@pytest.mark.parametrize(
    ("kind", "begun"),
    [("application/json", '{"prom'), ("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; na")],
)
def test_a_client_that_hangs_up_within_its_body_leaves_no_traceback(
    kind: str, begun: str, videos: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int] = []
    respond = ApiError.response
    monkeypatch.setattr(ApiError, "response", lambda refusal: statuses.append(refusal.status) or respond(refusal))
    head = f"POST /v1/videos HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", videos.port)) as connection:
        connection.sendall((head + begun).encode())
    until("the request is answered", lambda: statuses)
    assert statuses == [499]
    assert videos.client.post("/v1/videos", json={"prompt": "next"}).status_code == 200
    assert [record for record in caplog.records if record.exc_info] == []


def test_out_of_memory_fails_that_request_only(images: Any) -> None:
    images.pipeline.errors["big"] = torch.OutOfMemoryError("tried to allocate 2.00 GiB")
    answer = images.client.post("/v1/images/generations", json={"prompt": "big"})
    assert answer.status_code == 500
    assert error(answer)["code"] == "out_of_memory" and "2.00 GiB" in error(answer)["message"]
    assert images.client.post("/v1/images/generations", json={"prompt": "big"}).status_code == 200
    text = images.client.get("/metrics").text
    assert 'stowplan_requests_total{status="out_of_memory"} 1.0' in text
    assert 'stowplan_requests_total{status="completed"} 1.0' in text


def test_what_cannot_fit_is_refused_with_its_numbers(images: Any) -> None:
    def refuse(request: GenerationRequest) -> None:
        if request.width > 64:
            raise Refused(f"{request.width}x{request.height} needs 31.0 GiB and the ceiling is 30.0 GiB")

    images.refuse = refuse
    answer = images.client.post("/v1/images/generations", json={"prompt": "a", "size": "128x64"})
    assert answer.status_code == 422
    assert error(answer)["message"] == "128x64 needs 31.0 GiB and the ceiling is 30.0 GiB"
    assert images.client.post("/v1/images/generations", json={"prompt": "a"}).status_code == 200


# Videos


def test_a_video_is_a_real_mp4(videos: Any) -> None:
    answer = videos.client.post("/v1/videos", json={"prompt": "a cat", "size": "96x64", "frames": 17, "seed": 2})
    assert answer.status_code == 200
    job = answer.json()
    assert job["object"] == "video" and job["status"] in ("queued", "in_progress", "completed")
    done = videos.finished(job["id"])
    assert done["status"] == "completed" and done["progress"] == 100 and done["error"] is None
    assert (done["size"], done["frames"], done["seed"], done["model"]) == ("96x64", 17, 2, "tiny-wan")
    content = videos.client.get(f"/v1/videos/{job['id']}/content")
    assert content.headers["content-type"] == "video/mp4"
    frames = [frame.to_ndarray(format="rgb24") for frame in av.open(io.BytesIO(content.content)).decode(video=0)]
    assert len(frames) == 17 and frames[0].shape == (64, 96, 3)
    shade = 2 * 37 + 16 * 11 - 200
    assert np.abs(frames[16][32, 80].astype(int) - [shade, 230 - shade, 40 + shade // 2]).max() <= 6


def test_forms_are_read_as_json_is(videos: Any) -> None:
    fields = {"prompt": (None, "a"), "seconds": (None, "1"), "size": (None, "64x32"), "seed": (None, "5")}
    job = videos.client.post("/v1/videos", files=fields).json()
    assert (job["frames"], job["seed"], job["seconds"]) == (17, 5, "1.062")


def test_content_before_the_end_says_how_far_it_is(videos: Any) -> None:
    videos.pipeline.hold()
    job = videos.client.post("/v1/videos", json={"prompt": "long"}).json()
    answer = videos.client.get(f"/v1/videos/{job['id']}/content")
    assert answer.status_code == 409 and "0 %" in error(answer)["message"]


def test_a_failed_video_says_why(videos: Any) -> None:
    videos.pipeline.errors["big"] = torch.OutOfMemoryError("tried to allocate 2.00 GiB")
    job = videos.client.post("/v1/videos", json={"prompt": "big"}).json()
    done = videos.finished(job["id"])
    assert done["status"] == "failed" and done["error"]["code"] == "out_of_memory"
    answer = videos.client.get(f"/v1/videos/{job['id']}/content")
    assert answer.status_code == 409 and "2.00 GiB" in error(answer)["message"]


def test_deleting_cancels(videos: Any) -> None:
    videos.pipeline.hold()
    running = videos.client.post("/v1/videos", json={"prompt": "runs", "steps": 20}).json()
    waiting = videos.client.post("/v1/videos", json={"prompt": "waits"}).json()
    assert videos.pipeline.begun("runs").wait(DEADLINE)
    for job in (waiting, running):
        answer = videos.client.delete(f"/v1/videos/{job['id']}")
        assert answer.json() == {"id": job["id"], "object": "video.deleted", "deleted": True}
        assert videos.client.get(f"/v1/videos/{job['id']}").status_code == 404
    videos.pipeline.release()
    last = videos.client.post("/v1/videos", json={"prompt": "last"}).json()
    assert videos.finished(last["id"])["status"] == "completed"
    assert videos.pipeline.steps_run == {"runs": 1, "last": 4}


def test_a_full_queue_answers_429_with_numbers(videos: Any) -> None:
    videos.pipeline.hold()
    videos.client.post("/v1/videos", json={"prompt": "runs"})
    assert videos.pipeline.begun("runs").wait(DEADLINE)
    for _ in range(2):
        assert videos.client.post("/v1/videos", json={"prompt": "waits"}).status_code == 200
    answer = videos.client.post("/v1/videos", json={"prompt": "too many"})
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
    assert "2 requests are waiting and the queue holds 2" in error(answer)["message"]
    assert "stowplan_queue_requests 2.0" in videos.client.get("/metrics").text


def test_old_videos_make_room(one_place: Any) -> None:
    ids = [one_place.client.post("/v1/videos", json={"prompt": "a"}).json()["id"]]
    one_place.finished(ids[0])
    ids.append(one_place.client.post("/v1/videos", json={"prompt": "b"}).json()["id"])
    one_place.finished(ids[1])
    until("the first is gone", lambda: one_place.client.get(f"/v1/videos/{ids[0]}").status_code == 404)
    assert one_place.client.get(f"/v1/videos/{ids[1]}/content").status_code == 200


# Errors


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "code", "says"),
    [
        ("POST", "/v1/videos", {"json": {"prompt": "a", "size": "64"}}, 400, "invalid_value", "WIDTHxHEIGHT"),
        ("POST", "/v1/videos", {"json": {"prompt": "a", "siez": "64x32"}}, 400, "unknown_field", "'siez'"),
        ("POST", "/v1/videos", {"json": {"size": "64x32"}}, 400, "missing_field", "prompt is missing"),
        ("POST", "/v1/videos", {"content": b'{"\\ud800": 1}'}, 400, "unknown_field", "'\\ud800' is not known"),
        ("POST", "/v1/videos", {"content": b'{"prompt": "\\ud800"}'}, 400, "invalid_value", "unicode"),
        ("POST", "/v1/videos", {"content": b'{"prompt": "a", "user": "\\udfff"}'}, 400, "invalid_value", "unicode"),
        ("POST", "/v1/videos", {"json": {"prompt": "a", "model": "x"}}, 404, "model_not_found", "'tiny-wan'"),
        ("POST", "/v1/videos", {"content": b"{prompt"}, 400, "invalid_value", "not JSON"),
        ("POST", "/v1/videos", {"content": b"\xff\xfe"}, 400, "invalid_value", "not JSON"),
        ("POST", "/v1/videos", {"content": b"[" * 500_000}, 400, "invalid_value", "not JSON"),
        ("POST", "/v1/videos", {"content": b""}, 400, "invalid_value", "not JSON"),
        ("POST", "/v1/videos", {"content": b" " * (1 << 20) + b"{}"}, 413, "body_too_large", "1048576 bytes"),
        ("POST", "/v1/videos", {"files": {"input_reference": b"x"}}, 400, "invalid_value", "no files"),
        (
            "POST", "/v1/videos", {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
            400, "invalid_value", "form",
        ),
        ("POST", "/v1/images/generations", {"json": {"prompt": "a"}}, 400, "wrong_kind", "use POST /v1/videos"),
        ("GET", "/v1/videos/video_0", {}, 404, "video_not_found", "'video_0'"),
        ("DELETE", "/v1/videos/video_0", {}, 404, "video_not_found", "'video_0'"),
        ("GET", "/v1/nothing", {}, 404, "not_found", "/openapi.json"),
        ("PUT", "/v1/videos", {}, 405, "invalid_request", "/openapi.json"),
    ],
)  # fmt: skip
def test_errors_are_one_sentence_in_openais_form(
    videos: Any, method: str, path: str, sent: dict[str, Any], status: int, code: str, says: str
) -> None:
    answer = videos.client.request(method, path, **sent)
    assert answer.status_code == status
    assert error(answer)["code"] == code and says in error(answer)["message"]
    assert videos.queue.waiting == 0 and not videos.pipeline.steps_run


def test_asking_an_image_model_for_a_video_names_the_right_route(images: Any) -> None:
    answer = images.client.post("/v1/videos", json={"prompt": "a"})
    assert answer.status_code == 400 and "use POST /v1/images/generations" in error(answer)["message"]


def test_the_unforeseen_is_a_500_without_a_traceback(videos: Any) -> None:
    def admit(request: GenerationRequest) -> None:
        raise KeyError("layers")

    videos.refuse = admit
    answer = videos.client.post("/v1/videos", json={"prompt": "a"})
    assert answer.status_code == 500
    assert error(answer)["code"] == "internal_error" and "KeyError" in error(answer)["message"]
    assert answer.headers["connection"] == "close"


def test_the_openapi_document_names_every_field(videos: Any) -> None:
    paths = videos.client.get("/openapi.json").json()["paths"]
    body = paths["/v1/videos"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "size", "seconds", "frames", "steps", "seed"} <= set(body["properties"])


# The server


def test_a_port_that_is_taken_is_one_sentence(videos: Any) -> None:
    with pytest.raises(ServerError, match=rf"port {videos.port} cannot be listened on .*spec\.serving\.port"):
        start_server(create_app(Door(), RequestQueue(), AgentMetrics(), lambda: None), videos.port)


def test_a_connection_holds_nothing_back() -> None:
    """Head and body of an answer are two packets; held back, the second waits 40 ms for the first to be confirmed."""
    with listen(0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_stopping_ends_an_open_request_and_frees_the_port(pipeline: Any, image_defaults: Any) -> None:
    door, metrics = Door(), AgentMetrics()
    queue = RequestQueue(pipeline.run, lambda request: None, metrics=metrics)
    door.open_up()
    server = start_server(create_app(door, queue, metrics, image_defaults), 0)
    pipeline.hold()
    status: list[int] = []

    def ask() -> None:
        url = f"http://127.0.0.1:{server.port}/v1/images/generations"
        status.append(httpx.post(url, json={"prompt": "open"}, timeout=DEADLINE, trust_env=False).status_code)

    client = threading.Thread(target=ask)
    client.start()
    assert pipeline.begun("open").wait(DEADLINE)
    assert not queue.stop(timeout=0)
    pipeline.release()
    client.join(DEADLINE)
    assert status == [503]
    assert server.stop() and not server.alive
    assert start_server(create_app(door, queue, metrics, image_defaults), server.port).stop()
    assert queue.stop(DEADLINE)
