"""uvicorn on a thread of its own, so that the start-up phases keep the main thread and its signals.

The port is bound before anything else, and a port that is taken is one sentence rather than an exit of the process.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from typing import Final

import uvicorn
from fastapi import FastAPI

STOP_TIMEOUT: Final = 10.0
"""Seconds that open requests get to end when the server stops."""
_BACKLOG: Final = 512


class ServerError(RuntimeError):
    """The server could not start; the message is for a user."""


class _Announcing(uvicorn.Server):
    """A uvicorn server that says when it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


class RunningServer:
    """A server that answers. ``stop`` it once."""

    def __init__(self, port: int, server: uvicorn.Server, thread: threading.Thread) -> None:
        self.port = port
        """The port it listens on; the one given by the system when 0 was asked for."""
        self._server = server
        self._thread = thread

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def stop(self, timeout: float = STOP_TIMEOUT) -> bool:
        """Accept no more connections and wait for open requests, at most ``timeout`` seconds; whether it ended."""
        self._server.config.timeout_graceful_shutdown = max(0, int(timeout))
        self._server.should_exit = True
        self._thread.join(timeout + 5)
        return not self._thread.is_alive()


def start_server(app: FastAPI, port: int) -> RunningServer:
    """Serve on all addresses, IPv6 too where the host has it. Raises ServerError when the port cannot be had."""
    listener = listen(port)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False, timeout_keep_alive=30
    )
    ready = threading.Event()
    server = _Announcing(config, ready.set)

    def serve() -> None:
        try:
            server.run(sockets=[listener])
        finally:
            listener.close()
            ready.set()

    thread = threading.Thread(target=serve, name="stowplan-http", daemon=True)
    thread.start()
    ready.wait()
    if not server.started:
        raise ServerError(f"the HTTP server on port {listener.getsockname()[1]} did not start; its log says why")
    return RunningServer(listener.getsockname()[1], server, thread)


def listen(port: int) -> socket.socket:
    """A listening socket on all addresses, for IPv6 too where the host has it. Raises ServerError in one sentence.

    Connections inherit that nothing is held back to be sent in one packet with what follows. asyncio would say so only
    for sockets whose protocol is stated, which these are not; each answer then took the 40 ms of a delayed ACK.
    """
    try:
        listener = _dual_stack(port) or socket.create_server(("", port), backlog=_BACKLOG)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise ServerError(
            f"port {port} cannot be listened on ({os.strerror(error.errno) if error.errno else error}); "
            "choose another with --port, or with spec.serving.port in a cluster"
        ) from None


def _dual_stack(port: int) -> socket.socket | None:
    """A socket for IPv6 and IPv4; None where the kernel knows IPv6 and the pod has no address of it."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
