"""One address, two forms: JSON for programs, a page for people; before there is something, the phase or a 503."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from stowplan_agent.serving.app import create_app
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.residency import Residency, prefers_html
from stowplan_agent.serving.server import start_server

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (BROWSER, True),
        ("TEXT/HTML", True),
        ("text/*", True),
        ("text/html;q=0.5, application/json;q=0.4", True),
        ("text/html;q=0.4, application/json;q=0.5", False),
        ("text/html, application/json", False),
        ("text/html;q=0, */*", False),
        ("text/html;q=high", False),
        ("application/*, text/html;q=0.9", False),
    ],
)
def test_what_is_preferred(accept: str, html: bool) -> None:
    assert prefers_html(accept) is html


@pytest.fixture
def shown() -> Iterator[tuple[list[Residency], httpx.Client]]:
    found: list[Residency] = []
    door, queue = Door("Load", "reading"), RequestQueue()
    app = create_app(door, queue, AgentMetrics(), lambda: None, residency=lambda: found[-1] if found else None)
    server = start_server(app, 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=20, trust_env=False) as client:
        yield found, client
    assert queue.stop(20)
    assert server.stop()


def test_before_there_is_something(shown: tuple[list[Residency], httpx.Client]) -> None:
    found, client = shown
    empty = {"phase": "Load", "message": "reading", "status": None, "record": None, "placement": None}
    assert client.get("/residency").json() == empty
    assert client.get("/residency", headers={"Accept": BROWSER}).status_code == 503
    found.append(Residency(lambda: {"status": {"phase": "Load"}}, lambda: None))
    assert client.get("/residency").json() == empty | {"status": {"phase": "Load"}}
    answer = client.get("/residency", headers={"Accept": BROWSER})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")


def test_both_forms(shown: tuple[list[Residency], httpx.Client]) -> None:
    found, client = shown
    found.append(Residency(lambda: {"record": {"a": 1}, "placement": {"b": 2}}, lambda: "<!DOCTYPE html>..."))
    page, document = client.get("/residency", headers={"Accept": BROWSER}), client.get("/residency")
    assert (page.text, page.headers["content-type"]) == ("<!DOCTYPE html>...", "text/html; charset=utf-8")
    assert document.json()["placement"] == {"b": 2}
    assert page.headers["vary"] == document.headers["vary"] == "Accept"
