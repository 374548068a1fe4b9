"""The fake API server behind real HTTP, with discovery and watches, for the whole program with kopf in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import kopf
import yaml
from aiohttp import web
from fake_server import FakeServer, Request

from stowplan_operator.handlers import registry
from stowplan_operator.kinds import LISTED, Json, Kind
from stowplan_operator.program import Program
from stowplan_operator.settings import Settings

WatchFault = Callable[[Kind], Json | int | None]
"""Asked when a watch is opened: a status to refuse it with, an event to send and end with, or nothing."""

Running = tuple[Program, "asyncio.Task[None]"]


class WatchedServer:
    """One address. ``away`` closes every connection at once; ``watch_fault`` spoils watches that are opened."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.away = False
        self.watch_fault: WatchFault = lambda kind: None
        self.opened: list[Kind] = []
        self._streams: dict[asyncio.Queue[bytes | None], Kind] = {}
        server.watchers.append(self._changed)

    def cut(self) -> None:
        """End every watch that is open."""
        for stream in self._streams:
            stream.put_nowait(None)

    def _changed(self, type_: str, kind: Kind, raw: Json) -> None:
        for stream, wanted in self._streams.items():
            if wanted == kind:
                stream.put_nowait(_line(type_, raw))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if (found := _discovery(request.path)) is not None:
            return web.json_response(found)
        if request.query.get("watch") == "true":
            return await self._watch(request)
        body = await request.json() if request.can_read_body else None
        query = {"limit": "500", **request.query}
        answer = self.server._answer(Request(request.method, request.path, query, body))
        return web.Response(status=answer.status, body=answer.data, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        kind = next(kind for kind in LISTED if request.path == kind.path() or request.path == kind.path("studio"))
        self.opened.append(kind)
        fault = self.watch_fault(kind)
        if isinstance(fault, int):
            return web.json_response({"kind": "Status", "code": fault, "message": "injected"}, status=fault)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if fault is not None:
            await response.write(json.dumps(fault).encode() + b"\n")
            return response
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        since = int(request.query.get("resourceVersion") or 0)
        for path, raw in self.server.objects.items():
            if path.startswith(kind.path("studio") + "/") and int(raw["metadata"]["resourceVersion"]) > since:
                stream.put_nowait(_line("MODIFIED", raw))
        self._streams[stream] = kind
        try:
            while (line := await stream.get()) is not None:
                await response.write(line)
        finally:
            self._streams.pop(stream, None)
        return response


def _line(type_: str, raw: Json) -> bytes:
    return json.dumps({"type": type_, "object": raw}).encode() + b"\n"


_KNOWN = (
    *LISTED,
    # kopf does not start before it has seen these.
    Kind("Namespace", "", "v1", "namespaces"),
    Kind("Event", "", "v1", "events"),
    Kind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions"),
)


def _discovery(path: str) -> Json | None:
    """What kopf asks for before it watches."""
    if path == "/api":
        return {"versions": ["v1"]}
    groups = {(kind.group, kind.version) for kind in _KNOWN}
    if path == "/apis":
        return {"groups": [_group(name, version) for name, version in groups if name]}
    for name, version in groups:
        if path == (f"/apis/{name}/{version}" if name else "/api/v1"):
            return {"resources": [_resource(kind) for kind in _KNOWN if (kind.group, kind.version) == (name, version)]}
    return None


def _group(name: str, version: str) -> Json:
    return {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}


def _resource(kind: Kind) -> Json:
    return {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "kind": kind.kind,
        "namespaced": kind in LISTED,
        "verbs": ["get", "list", "watch", "create", "patch"],
    }


@contextlib.asynccontextmanager
async def program_on(watched: WatchedServer, folder: Path, environ: dict[str, str]) -> AsyncIterator[Running]:
    """The whole operator against a server, from its start to its stop, and its task; raises what ended it by itself."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", watched.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
    environ["KUBECONFIG"] = str(path)
    program = Program(Settings(agent_image="stowplan-agent:test", metrics_port=0, kubeconfig=str(path)))
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(registry=registry(program), standalone=True, clusterwide=True, stop_flag=stop, ready_flag=ready)
    )
    try:
        await asyncio.wait_for(ready.wait(), 30)
        yield program, running
    finally:
        stop.set()
        watched.cut()
        await asyncio.wait_for(running, 30)
        await runner.cleanup()


def kubeconfig(address: str) -> Json:
    """What a client outside the cluster is given."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": address}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "nobody"}}],
        "users": [{"name": "nobody", "user": {"token": "none"}}],
    }
