"""A start that cannot succeed ends with what went wrong, and leaves nothing running; one that has to wait, waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import kopf
import pytest
import yaml
from aiohttp import web
from watched_server import kubeconfig

from stowplan_operator.handlers import registry
from stowplan_operator.program import Program
from stowplan_operator.settings import Settings

Scenario = Callable[[Program], Awaitable[None]]


async def on_a_server_that_answers_nonsense(scenario: Scenario, folder: Path) -> None:
    """Every answer is JSON and none is a list: no `ApiError`, but what no code foresaw."""
    app = web.Application()

    async def nonsense(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "1"}})

    app.router.add_route("*", "/{path:.*}", nonsense)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
    try:
        settings = Settings(agent_image="stowplan-agent:test", metrics_port=0, kubeconfig=str(path))
        await asyncio.wait_for(scenario(Program(settings)), 30)
    finally:
        await runner.cleanup()


def test_lists_that_fail_for_good_are_raised_and_nothing_is_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def scenario(program: Program) -> None:
        before = asyncio.all_tasks()
        with pytest.raises(KeyError, match="items"):
            await program.start()
        assert program.complaint() == "resync ended: KeyError: 'items'; " + "; ".join(
            f"worker {number} ended" for number in range(program.settings.workers)
        )
        assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith(("resync", "worker"))]

    asyncio.run(on_a_server_that_answers_nonsense(scenario, tmp_path))


def test_the_process_ends_with_it_and_does_not_try_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def scenario(program: Program) -> None:
        with pytest.raises(Exception) as error:
            await kopf.operator(registry=registry(program), standalone=True, clusterwide=True)
        assert isinstance(error.value.__cause__, KeyError)

    asyncio.run(on_a_server_that_answers_nonsense(scenario, tmp_path))
    assert "KeyError: 'items'" in caplog.text
