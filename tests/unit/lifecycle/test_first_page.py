"""The page of /residency: what it takes long to work out is worked out once, however many ask at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stowplan_agent.lifecycle.residency import residency_of
from stowplan_agent.report import frontier, request, request_page

CLIENTS = 4


def test_those_who_ask_at_once_wait_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, worked_out = threading.Barrier(CLIENTS), []

    def requests_of(*_: Any) -> str:
        arrived.wait(20)
        return "requests"

    def frontier_around(_: Any) -> str:
        worked_out.append(threading.get_ident())
        threading.Event().wait(0.1)  # long enough for the others to come
        return "cards"

    monkeypatch.setattr(request, "requests_of", requests_of)
    monkeypatch.setattr(frontier, "frontier_around", frontier_around)
    monkeypatch.setattr(request_page, "request_page", lambda found, *, status, frontier: f"{found} {frontier}")
    session = SimpleNamespace(placement=lambda: "placement")
    startup = SimpleNamespace(prepared=SimpleNamespace(record="record", session=session))
    residency = residency_of(cast(Any, startup), cast(Any, SimpleNamespace(status=SimpleNamespace(phase="Ready"))))
    with ThreadPoolExecutor(CLIENTS) as clients:
        pages = list(clients.map(lambda _: residency.page(), range(CLIENTS)))
    assert pages == ["requests cards"] * CLIENTS
    assert len(worked_out) == 1
