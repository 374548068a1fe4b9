"""A hub on this machine that speaks the real one's protocol, as far as a download asks: API, redirects, ranges.

Large files are answered with a redirect to a signed address on another path, as by the hub's CDN. It can break a
connection after some bytes, send bytes other than those it states the hash of, and refuse; it keeps all requests.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIGNATURE = "X-Amz-Signature=verysecretsignature"
RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


@dataclass
class FakeHub:
    """A repository ``org/wan``, and how it misbehaves."""

    files: dict[str, bytes]
    break_after: dict[str, int] = field(default_factory=dict)
    """Bytes of a file after which its first connection breaks."""
    stall_after: dict[str, int] = field(default_factory=dict)
    """Bytes of a file after which its first connection says nothing more, until ``released``."""
    released: threading.Event = field(default_factory=threading.Event)
    served: dict[str, bytes] = field(default_factory=dict)
    """What is sent instead of a file."""
    stated_sizes: dict[str, int] = field(default_factory=dict)
    needs_token: str | None = None
    gated: bool = False
    busy: int = 0
    """How many requests are answered with 503 first."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and Range."""
    endpoint: str = ""

    def ranges(self, file: str) -> list[str | None]:
        """The ranges that were asked of one file's bytes."""
        return [asked for method, path, asked in self.requests if method == "GET" and path.endswith(f"/{file}")]

    def is_large(self, file: str) -> bool:
        return file.endswith(".safetensors")

    def etag(self, file: str) -> str:
        content = self.files[file]
        if self.is_large(file):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()

    def size(self, file: str) -> int:
        return self.stated_sizes.get(file, len(self.files[file]))

    def tree(self) -> list[dict[str, Any]]:
        listed = []
        for path in self.files:
            entry = {"type": "file", "path": path, "size": self.size(path), "oid": "f" * 40}
            if self.is_large(path):
                entry["lfs"] = {"oid": self.etag(path), "size": self.size(path), "pointerSize": 134}
            listed.append(entry)
        return listed


def of_folder(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub at ``hub.endpoint``, until the context ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Nothing: what was asked is kept in ``hub.requests``."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, (path, _, query) = self.hub, self.path.partition("?")
        hub.requests.append((self.command, path, self.headers.get("Range")))
        if hub.busy:
            hub.busy -= 1
            return self._json(503, {})
        if path.startswith("/cdn/"):
            return self._bytes(path.removeprefix("/cdn/")) if SIGNATURE in query else self._json(403, {})
        if hub.needs_token and self.headers.get("Authorization") != f"Bearer {hub.needs_token}":
            return self._refuse(401, "RepoNotFound", "Repository not found")
        if path.startswith("/api/models/org/wan/revision/"):
            if path.rsplit("/", 1)[1] not in ("main", COMMIT):
                return self._refuse(404, "RevisionNotFound", "no such revision")
            names = [{"rfilename": name} for name in hub.files]
            return self._json(200, {"id": "org/wan", "modelId": "org/wan", "sha": COMMIT, "siblings": names})
        if path.startswith("/api/models/org/wan/tree/"):
            return self._json(200, hub.tree())
        match = RESOLVE.fullmatch(path)
        if match is None or match["repo"] != "org/wan":
            return self._refuse(404, "RepoNotFound", "Repository not found")
        if hub.gated:
            return self._refuse(403, "GatedRepo", "Access to this model is restricted")
        return self._file(match["file"])

    def _file(self, file: str) -> None:
        stated = {"X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if not self.hub.is_large(file):
            return self._bytes(file, {**stated, "ETag": f'"{self.hub.etag(file)}"'})
        linked = {"X-Linked-Etag": f'"{self.hub.etag(file)}"', "X-Linked-Size": str(self.hub.size(file))}
        target = (
            f"{self.hub.endpoint.replace('127.0.0.1', 'localhost')}/cdn/{file}?{SIGNATURE}"  # another host, as a CDN is
        )
        return self._send(302, b"", {**stated, **linked, "Location": target})

    def _bytes(self, file: str, headers: dict[str, str] | None = None) -> None:
        content = self.hub.served.get(file, self.hub.files[file])
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if (asked := self.headers.get("Range")) else 0
        headers = dict(headers or {}, **{"Content-Type": "application/octet-stream"})
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        broken = self.hub.break_after.pop(file, None) if self.command == "GET" else None
        stalled = self.hub.stall_after.pop(file, None) if self.command == "GET" else None
        self._send(206 if asked else 200, content[start:], headers, stalled if broken is None else broken, stalled)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": message})

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], broken: int | None = None, stalled: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body if broken is None else body[:broken])
        if broken is not None:
            self.wfile.flush()
            if stalled is not None:
                self.hub.released.wait(60)
            self.close_connection = True
            self.connection.close()
