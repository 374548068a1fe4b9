"""Waiting for a component to answer, with a deadline, and with its log in the error when it does not."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from localcluster import process
from localcluster.addresses import API_SERVER
from localcluster.errors import ClusterError
from localcluster.layout import Layout

POLL_S = 0.1
REQUEST_TIMEOUT_S = 5.0


def until(layout: Layout, component: str, what: str, probe: Callable[[], bool], deadline_s: float) -> None:
    """Poll ``probe`` until true; ClusterError with the log's tail when ``component`` ends or ``deadline_s`` passes."""
    record = process.recorded(layout)[component]
    began = time.monotonic()
    while not probe():
        seconds = time.monotonic() - began
        if not record.alive:
            raise ClusterError(f"{component} ended before {what}; {process.tail(layout, component)}")
        if seconds > deadline_s:
            raise ClusterError(
                f"{component} runs, but {what} took longer than {deadline_s:.0f} s; {process.tail(layout, component)}"
            )
        time.sleep(POLL_S)


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    """True when a GET of ``url`` gives a status below 400."""
    try:
        with _open(url, context):
            return True
    except (urllib.error.URLError, OSError):
        return False


def administrator(layout: Layout) -> ssl.SSLContext:
    """A TLS context that speaks to the API server as the administrator."""
    context = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
    context.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")
    return context


def read(layout: Layout, path: str) -> Any:
    """The object at an API path, or None while it does not exist or the server does not answer."""
    try:
        with _open(API_SERVER + path, administrator(layout)) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError):
        return None


def listens(host: str, port: int) -> bool:
    """True when something accepts connections at ``host``:``port``."""
    with socket.socket() as probe:
        probe.settimeout(REQUEST_TIMEOUT_S)
        return probe.connect_ex((host, port)) == 0


def _open(url: str, context: ssl.SSLContext | None) -> Any:
    # No proxy of the user's: every address is on this machine.
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
    return urllib.request.build_opener(*handlers).open(url, timeout=REQUEST_TIMEOUT_S)
