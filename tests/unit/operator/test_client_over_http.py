"""The operator's client on the real HTTP library: one request a call, and every failure is one judged exception."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from stowplan_operator.client import PAGE, ApiError, Client, environments_proxy
from stowplan_operator.kinds import CONFIG_MAP, POD

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Call = Callable[[Client], Awaitable[object]]


async def on_a_server(handler: Handler, call: Call) -> list[web.Request]:
    """Serve, call once, and give the requests that came."""
    came: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        came.append(request)
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = Client(ApiClient(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")))
    try:
        await call(client)
    finally:
        await client.close()
        await runner.cleanup()
    return came


async def close_the_gate(client: Client) -> object:
    return await client.patch_status(POD, "studio", "wan", {"metadata": {"uid": "u"}}, "stowplan-gate")


def answers(status: int, body: object, **headers: str) -> Handler:
    text = body if isinstance(body, str) else json.dumps(body)

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers={key.replace("_", "-"): v for key, v in headers.items()})

    return handler


@pytest.mark.parametrize(
    ("status", "body", "headers", "transient", "retry_after"),
    [
        (429, {"kind": "Status", "message": "busy"}, {"Retry_After": "3"}, True, 3.0),
        (503, "<html>the load balancer speaks</html>", {}, True, 0.0),
        (500, {"kind": "Status", "message": "webhook"}, {}, False, 0.0),
        (409, {"kind": "Status", "message": "conflict"}, {}, False, 0.0),
        (410, {"kind": "Status", "message": "expired"}, {}, False, 0.0),
    ],
)
def test_a_refusal_is_one_request_and_one_judged_exception(
    status: int, body: object, headers: dict[str, str], transient: bool, retry_after: float
) -> None:
    tried: list[int] = []

    async def call(client: Client) -> None:
        with pytest.raises(ApiError) as error:
            await close_the_gate(client)
        tried.append(error.value.status)
        assert (error.value.transient, error.value.retry_after) == (transient, retry_after)

    came = asyncio.run(on_a_server(answers(status, body, **headers), call))
    assert tried == [status]
    assert len(came) == 1, "the library retries nothing by itself: the queue does, with a newer decision"


def test_a_gate_is_a_strategic_merge_patch_of_the_status() -> None:
    (request,) = asyncio.run(on_a_server(answers(200, {}), close_the_gate))
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/studio/pods/wan/status")
    assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert request.query == {"fieldManager": "stowplan-gate"}


def test_stored_starts_are_listed_by_metadata_alone() -> None:
    page = {"items": [{"metadata": {"name": "wan-starts"}}], "metadata": {"resourceVersion": "7"}}

    async def call(client: Client) -> None:
        (found,) = [pages async for pages in client.pages(CONFIG_MAP, None, "stowplan.dev/deployment")]
        assert found == ([{"metadata": {"name": "wan-starts"}, "apiVersion": "v1", "kind": "ConfigMap"}], 7)

    (request,) = asyncio.run(on_a_server(answers(200, page), call))
    assert "PartialObjectMetadataList" in request.headers["Accept"]
    assert request.query == {"limit": f"{PAGE}", "labelSelector": "stowplan.dev/deployment"}


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize("handler", [hangs_up, answers(200, '{"items": [{"metadata"')], ids=["hung up", "cut short"])
def test_a_connection_that_breaks_is_no_answer(handler: Handler) -> None:
    async def call(client: Client) -> None:
        with pytest.raises(ApiError) as error:
            await close_the_gate(client)
        assert (error.value.status, error.value.transient) == (0, True)

    asyncio.run(on_a_server(handler, call))


def test_nobody_listening_is_no_answer() -> None:
    async def scenario() -> None:
        client = Client(ApiClient(Configuration(host="http://127.0.0.1:9")))
        with pytest.raises(ApiError) as error:
            await client.get(POD, "studio", "wan")
        assert (error.value.status, error.value.transient) == (0, True)
        await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ({"http_proxy": "http://proxy:3128"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "10.96.0.1,.svc"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "*"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "example.com"}, "http://proxy:3128"),
    ],
)
def test_a_proxy_of_the_environment_is_used_where_it_is_meant(
    environment: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        for spelling in (name, name.upper()):
            monkeypatch.delenv(spelling, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environments_proxy("https://10.96.0.1:443") == expected
