"""Probes, metrics and the model: they answer from the first moment, and never wait for the device."""

from __future__ import annotations

from typing import Any

import httpx

from stowplan_agent.serving.app import create_app
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.server import start_server

DEADLINE = 20.0


def test_before_ready_only_the_probes_answer(starting: Any) -> None:
    starting.door.phase = "Load"
    starting.door.message = "reading 3 of 7 files"
    health = starting.client.get("/health")
    assert health.status_code == 503
    assert health.json() == {"phase": "Load", "message": "reading 3 of 7 files"}
    assert starting.client.get("/liveness").status_code == 200
    assert starting.client.get("/metrics").status_code == 200
    answer = starting.client.post("/v1/videos", json={"prompt": "a"})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
    assert "phase Load" in answer.json()["error"]["message"]


def test_health_follows_the_door(videos: Any) -> None:
    assert videos.client.get("/health").json() == {"phase": "Ready", "message": ""}
    videos.door.close("the agent was asked to end")
    answer = videos.client.get("/health")
    assert answer.status_code == 503 and answer.json()["message"] == "the agent was asked to end"
    assert videos.client.post("/v1/videos", json={"prompt": "a"}).status_code == 503


def test_probes_answer_while_a_request_runs(videos: Any) -> None:
    videos.pipeline.hold()
    job = videos.client.post("/v1/videos", json={"prompt": "long"}).json()
    assert videos.pipeline.begun("long").wait(DEADLINE)
    for path in ("/liveness", "/health", "/metrics", f"/v1/videos/{job['id']}"):
        assert videos.client.get(path, timeout=5).status_code == 200
    videos.pipeline.release()
    assert videos.finished(job["id"])["status"] == "completed"


def test_the_model_may_become_known_later() -> None:
    known: list[Any] = [None]
    door, metrics, queue = Door(), AgentMetrics(), RequestQueue()
    server = start_server(create_app(door, queue, metrics, lambda: known[0]), 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        assert client.get("/v1/models").json() == {"object": "list", "data": []}
        assert client.post("/v1/images/generations", json={"prompt": "a"}).status_code == 503
    assert server.stop()


def test_models(videos: Any) -> None:
    assert [model["id"] for model in videos.client.get("/v1/models").json()["data"]] == ["tiny-wan"]


def test_a_server_that_failed_while_it_served_says_why(videos: Any) -> None:
    videos.door.phase = "Failed"
    videos.door.close("the seed placement did not prove itself")
    assert videos.queue.stop(DEADLINE)
    answer = videos.client.post("/v1/videos", json={"prompt": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert "phase Failed): the seed placement did not prove itself" in answer.json()["error"]["message"]


def test_metrics_answer_a_scraper_that_asks_for_a_version_that_is_none(starting: Any) -> None:
    for version in ("abc", "1.0.0.0; escaping=x", ""):
        accept = f"application/openmetrics-text; version={version}"
        answer = starting.client.get("/metrics", headers={"Accept": accept})
        assert (answer.status_code, "stowplan_queue_requests" in answer.text) == (200, True)
