"""The whole program, kopf included, on a server whose watches are refused, expire, are cut, or go away for a while.

Resyncs are three minutes apart, so whatever arrives here arrives by a watch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_server import FakeServer
from observations import deployment_of_user, placement, pod
from test_faulty_server import POD_NAME, gate_of
from watched_server import WatchedServer, program_on

from stowplan_operator.kinds import RESIDENCY_PLACEMENT, WATCHED, Json, Kind


def flip(server: FakeServer, status: str) -> None:
    server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"]["conditions"][-1].update(status=status))


async def until(probe: Callable[[], bool], what: str) -> None:
    """Poll until true: what is waited for is written by the program under test, over HTTP."""
    async with asyncio.timeout(60):
        while not probe():
            await asyncio.sleep(0.02)
    assert probe(), what


async def follows(watched: WatchedServer, status: str) -> None:
    flip(watched.server, status)
    await until(lambda: gate_of(watched.server) == status, f"the gate is {status}")


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
FAULTS: dict[str, Json | int] = {"429": 429, "500": 500, "503": 503, "410 in the stream": EXPIRED}


def once(fault: Json | int) -> Callable[[Kind], Json | int | None]:
    left = [2]

    def decide(kind: Kind) -> Json | int | None:
        if kind != RESIDENCY_PLACEMENT or not left[0]:
            return None
        left[0] -= 1
        return fault

    return decide


def run(scenario: Callable[[WatchedServer], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "")
    dd = deployment_of_user(status={})
    watched = WatchedServer(FakeServer(dd, pod(dd, gate=None), placement(validated="False")))

    async def whole() -> None:
        async with program_on(watched, tmp_path, os.environ) as (program, running):  # type: ignore[arg-type]
            await until(lambda: gate_of(watched.server) == "False", "the gate is closed at first")
            await until(lambda: set(watched.opened) >= set(WATCHED), "every kind is watched")
            await scenario(watched)  # type: ignore[misc]
            assert program.complaint() == ""
            assert not running.done(), "the operator ended by itself"

    asyncio.run(whole())


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_watch_that_cannot_be_opened_is_opened_again(
    fault: Json | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(watched: WatchedServer) -> None:
        await follows(watched, "True")
        watched.watch_fault = once(fault)
        watched.cut()
        await follows(watched, "False")
        await follows(watched, "True")

    run(scenario, tmp_path, monkeypatch)


def test_a_server_that_restarts_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(watched: WatchedServer) -> None:
        await follows(watched, "True")
        watched.away = True
        watched.cut()
        flip(watched.server, "False")
        await asyncio.sleep(1)
        assert gate_of(watched.server) == "True"
        watched.away = False
        await until(lambda: gate_of(watched.server) == "False", "what happened in between is heard")
        await follows(watched, "True")

    run(scenario, tmp_path, monkeypatch)


BROKEN = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}}


@pytest.mark.parametrize("fault", [410, BROKEN], ids=["410 as the answer", "500 in the stream"])
def test_what_kopf_cannot_go_on_from_ends_the_process_and_the_next_one_is_right(
    fault: Json | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "")
    dd = deployment_of_user(status={})
    watched = WatchedServer(FakeServer(dd, pod(dd, gate=None), placement(validated="False")))

    async def first() -> None:
        async with program_on(watched, tmp_path, os.environ) as (_, running):  # type: ignore[arg-type]
            await until(lambda: RESIDENCY_PLACEMENT in watched.opened, "placements are watched")
            watched.watch_fault = once(fault)
            watched.cut()
            await until(running.done, "it ends, rather than run on without a watch")

    with pytest.raises(Exception, match=r"injected|leader changed"):
        asyncio.run(first())
    flip(watched.server, "True")
    watched.watch_fault = lambda kind: None

    async def second() -> None:
        async with program_on(watched, tmp_path, os.environ):  # type: ignore[arg-type]
            await until(lambda: gate_of(watched.server) == "True", "what was missed comes from a list")
            await follows(watched, "False")

    asyncio.run(second())
