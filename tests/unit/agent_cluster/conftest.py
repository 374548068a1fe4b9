"""A tiny API server that keeps ResidencyPlacements and fails on command; the real Kubernetes client talks to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client import Configuration

BASE = "/apis/stowplan.dev/v1alpha1/namespaces/default/residencyplacements/"


@dataclass
class Trouble:
    """One failed call. ``status`` 0 hangs up without an answer."""

    status: int
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeApi:
    """The objects, every call in order, and the troubles still to come."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    writes: list[dict[str, Any]] = field(default_factory=list)
    patches: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    troubles: dict[str, list[Trouble]] = field(default_factory=lambda: {"GET": [], "PATCH": []})
    changed: threading.Condition = field(default_factory=threading.Condition)
    port: int = 0

    def configuration(self) -> Configuration:
        configuration = Configuration(host=f"http://127.0.0.1:{self.port}")
        configuration.proxy = None
        return configuration

    def create(self, name: str = "pod-1", *, uid: str = "rp-1", pod_uid: str = "uid-1", generation: int = 3) -> None:
        spec = {
            "deployment": "wan",
            "pod": {"name": name, "uid": pod_uid},
            "generation": generation,
            "limits": {"memoryBytes": 1 << 30},
        }
        with self.changed:
            self.objects[name] = {"metadata": {"name": name, "uid": uid}, "spec": spec}
            self.changed.notify_all()

    def trouble(self, verb: str, *troubles: Trouble) -> None:
        with self.changed:
            self.troubles[verb] += troubles

    def until(self, holds: Callable[[], Any], timeout: float = 20.0) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, timeout), f"never happened; calls were {self.calls[-20:]}"

    def phases(self) -> list[str]:
        with self.changed:
            return [write["phase"] for write in self.writes]

    def answer(self, verb: str, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self.objects.get(name)
        if found is None:
            return 404, {"kind": "Status", "message": f'residencyplacements "{name}" not found'}
        if verb == "PATCH":
            if body["metadata"]["uid"] != found["metadata"]["uid"]:
                return 409, {"kind": "Status", "message": "uid mismatch"}
            found["status"] = body["status"]
            self.writes.append(body["status"])
        return 200, found


class Handler(BaseHTTPRequestHandler):
    api: FakeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.handle_call("GET")

    def do_PATCH(self) -> None:
        self.handle_call("PATCH")

    def handle_call(self, verb: str) -> None:
        url = urlsplit(self.path)
        assert url.path.startswith(BASE)
        name, _, subresource = url.path.removeprefix(BASE).partition("/")
        assert (subresource == "status") == (verb == "PATCH")
        data = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        with self.api.changed:
            self.api.calls.append(verb)
            if verb == "PATCH":
                self.api.patches.append((self.headers["Content-Type"], parse_qs(url.query)))
            headers: dict[str, str] = {}
            if self.api.troubles[verb]:
                trouble = self.api.troubles[verb].pop(0)
                status, answer, headers = trouble.status, {"message": trouble.message}, trouble.headers
            else:
                status, answer = self.api.answer(verb, name, data)
            self.api.changed.notify_all()
        if status == 0:
            self.close_connection = True
            return
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"api": api}))
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield api
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def trouble() -> type[Trouble]:
    return Trouble
