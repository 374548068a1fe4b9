"""What all tests share: how they are spread over workers, where there are several (``make test``), and a free port.

Files go to workers in the order in which they are collected, which is that of folders: the cluster's and those that
inject faults, which take minutes each, come first, and the short ones of ``unit`` fill what is left at the end.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker a file, which shares its fixtures; and one for the cluster, of which a machine has one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            return "cluster" if "cluster" in path.split("/")[:-1] else path

    return ByFile(config, log)


@pytest.fixture(scope="module", autouse=True)
def no_event_loop_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """A file that leaves one running breaks each later file of its worker that runs one, and which is up to chance."""
    yield
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    pytest.fail(f"{request.node.name} leaves an event loop running; close what started it with the file.")


@pytest.fixture
def port() -> Iterator[int]:
    """A free port, and the signal handlers as they were before the agent took them."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    yield number
    for name, handler in handlers.items():
        signal.signal(name, handler)
