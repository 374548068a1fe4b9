"""An API server in memory, behind the transport that the operator's client uses, with faults to inject.

It keeps what the operator relies on: resource versions, uid and version preconditions, pages, server-side apply of our
manifests, strategic merge of pod conditions, and that an equal write changes nothing. It does not check schemas.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from stowplan_operator.kinds import LISTED, Json, Kind

_PATH = re.compile(r"(/apis?/[^?]*?)/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(status))?$")


@dataclass(frozen=True)
class Request:
    """One call, as a fault sees it."""

    method: str
    path: str
    query: dict[str, str]
    body: Json | None

    @property
    def writes(self) -> bool:
        return self.method != "GET"


@dataclass(frozen=True)
class Fault:
    """How a call goes wrong: an answer, silence, or a write that is done and whose answer is lost."""

    status: int = 0
    """0: no answer at all."""
    message: str = "injected"
    retry_after: str | None = None
    seconds: float = 0.0
    """Before the answer, or before the client's own patience ends."""
    done: bool = False
    """Whether the server has carried the call out nevertheless."""


@dataclass
class Answer:
    status: int
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)

    async def read(self) -> bytes:
        return self.data

    def getheader(self, name: str) -> str | None:
        return self.headers.get(name)


class RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeServer:
    """Objects by path; ``fault`` is asked before each call; ``watchers`` hear each change at once."""

    def __init__(self, *objects: Json) -> None:
        self.version = 100
        self.objects: dict[str, Json] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda request: None
        self.schemas: Json = {}
        self.watchers: list[Callable[[str, Kind, Json], None]] = []
        for raw in objects:
            self.put(raw)

    def put(self, raw: Json) -> None:
        """What somebody else writes."""
        kind = next(kind for kind in LISTED if kind.kind == raw["kind"])
        self._store(kind.path(raw["metadata"]["namespace"], raw["metadata"]["name"]), copy.deepcopy(raw))

    def change(self, kind: Kind, name: str, change: Callable[[Json], object]) -> None:
        """Somebody else changes an object in place."""
        raw = copy.deepcopy(self.objects[kind.path("studio", name)])
        change(raw)
        self._store(kind.path("studio", name), raw)

    def delete(self, kind: Kind, name: str) -> None:
        raw = self.objects.pop(kind.path("studio", name))
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        for watcher in self.watchers:
            watcher("DELETED", kind, copy.deepcopy(raw))

    def get(self, kind: Kind, name: str) -> Json:
        return self.objects[kind.path("studio", name)]

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.writes]

    # The transport: what kubernetes.aio's ApiClient is to the operator's Client.

    async def param_serialize(
        self, method: str, path: str, *, query_params: Any, header_params: Any, body: Any, auth_settings: Any
    ) -> tuple[Request]:
        return (Request(method, path, dict(query_params), copy.deepcopy(body)),)

    async def call_api(self, request: Request, *, _request_timeout: aiohttp.ClientTimeout) -> Answer:
        self.requests.append(request)
        fault = self.fault(request)
        async with asyncio.timeout(_request_timeout.total):
            await asyncio.sleep(0.01 + (fault.seconds if fault is not None else 0))
            if fault is None:
                return self._answer(request)
            if fault.done:
                self._answer(request)
            if fault.status == 0:
                raise aiohttp.ClientConnectionError(fault.message)
            body = json.dumps({"kind": "Status", "message": fault.message}).encode()
            return Answer(fault.status, body, {"Retry-After": fault.retry_after} if fault.retry_after else {})

    async def close(self) -> None:
        return None

    def _answer(self, request: Request) -> Answer:
        try:
            return Answer(200, json.dumps(self._carry_out(request)).encode())
        except RefusedError as refusal:
            return Answer(refusal.status, json.dumps({"kind": "Status", "message": f"{refusal}"}).encode())

    def _carry_out(self, request: Request) -> Json:
        body = request.body
        if request.path.startswith("/openapi/"):
            return {"components": {"schemas": self.schemas}}
        if request.method == "POST":
            assert body is not None
            path = f"{request.path}/{body['metadata']['name']}"
            if path in self.objects:
                raise RefusedError(409, "already exists")
            return self._store(path, copy.deepcopy(body))
        match = _PATH.match(request.path)
        if request.method == "GET" and (match is None or match[4] is None):
            return self._list(request)
        path = request.path.removesuffix("/status")
        there = self.objects.get(path)
        if request.method == "GET":
            if there is None:
                raise RefusedError(404, "not found")
            return there
        assert body is not None
        _check(body["metadata"], there, creates=not request.path.endswith("/status") and "force" in request.query)
        return self._store(path, _merged(there, body, request.path.endswith("/status"), request.query["fieldManager"]))

    def _list(self, request: Request) -> Json:
        root, _, plural = request.path.rpartition("/")
        group = root.partition("/namespaces/")[0]
        found = [
            raw
            for path, raw in sorted(self.objects.items())
            if path.startswith(f"{group}/") and path.rpartition("/")[0].endswith(f"/{plural}")
        ]
        start, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        end = start + limit
        metadata = {"resourceVersion": str(self.version), "continue": str(end) if end < len(found) else ""}
        return {"items": copy.deepcopy(found[start:end]), "metadata": metadata}

    def _store(self, path: str, raw: Json) -> Json:
        there, metadata = self.objects.get(path), raw["metadata"]
        if there is not None and there == raw | {"metadata": there["metadata"] | metadata}:
            return there
        self.version += 1
        metadata.setdefault("uid", f"uid-{self.version}")
        if there is None:
            metadata.setdefault("generation", 1)
        else:
            metadata["generation"] = there["metadata"]["generation"] + (there.get("spec") != raw.get("spec"))
        metadata["resourceVersion"] = str(self.version)
        self.objects[path] = raw
        kind = next((kind for kind in LISTED if kind.kind == raw["kind"]), None)
        for watcher in self.watchers if kind is not None else ():
            watcher("ADDED" if there is None else "MODIFIED", kind, copy.deepcopy(raw))  # type: ignore[arg-type]
        return raw


def _check(metadata: Json, there: Json | None, *, creates: bool) -> None:
    if there is None:
        if creates and "uid" not in metadata:
            return
        raise RefusedError(404, "not found")
    if "uid" in metadata and metadata["uid"] != there["metadata"]["uid"]:
        raise RefusedError(409, "Precondition failed: UID in precondition")
    if metadata.get("resourceVersion", there["metadata"]["resourceVersion"]) != there["metadata"]["resourceVersion"]:
        raise RefusedError(409, "the object has been modified")


def _merged(there: Json | None, body: Json, status: bool, manager: str) -> Json:
    if status:
        assert there is not None
        old, new = there.get("status") or {}, copy.deepcopy(body["status"])
        if there["kind"] == "Pod":
            types = {entry["type"] for entry in new["conditions"]}
            new["conditions"] = [e for e in old.get("conditions", []) if e["type"] not in types] + new["conditions"]
            new = old | new
        return copy.deepcopy(there) | {"status": new}
    raw = _laid_over(there or {}, body)
    if body["kind"] == "ConfigMap":
        # Server-side apply takes away what its manager no longer says; elsewhere no test needs that.
        raw["metadata"]["annotations"] = body["metadata"].get("annotations", {})
        raw["data"] = body.get("data", {})
    owned = {"manager": manager, "operation": "Apply", "fieldsV1": {}}
    raw["metadata"]["managedFields"] = [owned]
    raw["metadata"].pop("resourceVersion", None)
    if there is not None:
        raw["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
    return raw


def _laid_over(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return copy.deepcopy(below) | {key: _laid_over(below.get(key), value) for key, value in above.items()}
    return copy.deepcopy(above)
