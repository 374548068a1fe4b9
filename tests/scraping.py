"""A real Prometheus as a plain process: Debian's package, a folder of its own, the targets that a test names."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from localcluster import packages
from localcluster.errors import ClusterError

DEADLINE = 180.0
"""Seconds: how long a busy machine may take; nothing is judged by it."""
PACKAGE = "prometheus"


def program(name: str, log: Path) -> str:
    """The path of prometheus or promtool; installed where Debian's packages can be, never left out in CI."""
    if (found := packages.program(name)) is not None:
        return found
    if os.geteuid() == 0 and packages.program("apt-get") is not None:
        packages.install((PACKAGE,), log, "This test")
        return str(packages.program(name))
    if os.environ.get("CI") == "true":
        raise ClusterError(f"{name} is not here and cannot be installed; install Debian's package {PACKAGE}.")
    pytest.skip(f"there is no {name}; install Debian's package {PACKAGE}, or Prometheus itself")


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def until(holds: Callable[[], bool], process: subprocess.Popen[Any], log: Path) -> None:
    """Ask again until it holds; fail with the process' log where that ends first, or at the deadline."""
    end, pause = time.monotonic() + DEADLINE, threading.Event()
    while time.monotonic() < end and process.poll() is None:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass
        pause.wait(0.1)
    pytest.fail(f"it did not get there:\n{log.read_text()[-4000:]}")


@dataclass(frozen=True)
class Prometheus:
    """One that answers."""

    client: httpx.Client

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that a query has now. Raises AssertionError with Prometheus' own words for a bad one."""
        found: list[dict[str, Any]] = self._answer("query", query=query)["result"]
        return found

    def over(self, query: str, start: float, end: float) -> list[dict[str, Any]]:
        """The series that were a number at some second of a span, as Grafana asks; ``end`` may be to come."""
        found = self._answer("query_range", query=query, start=start, end=end, step=1)["result"]
        return [one for one in found if any(value != "NaN" for _, value in one["values"])]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing, with their labels."""
        found: list[dict[str, Any]] = self._answer("alerts")["alerts"]
        return found

    def values_of(self, label: str, selector: str) -> list[str]:
        """What a label has been in the series that a selector matches."""
        found: list[str] = self._answer(f"label/{label}/values", **{"match[]": selector})
        return found

    def _answer(self, what: str, **asked: Any) -> Any:
        answer = self.client.get(f"/api/v1/{what}", params=asked).json()
        assert answer["status"] == "success", f"{what} {asked}: {answer.get('error')}"
        return answer["data"]

    def until(self, query: str, seconds: float = 30.0) -> list[dict[str, Any]]:
        """The series of a query that are numbers, once there are some; none at the deadline."""
        end, pause = time.monotonic() + seconds, threading.Event()
        while True:
            found = [one for one in self.ask(query) if one["value"][1] != "NaN"]
            if found or time.monotonic() > end:
                return found
            pause.wait(0.2)


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, Mapping[str, str]]) -> Iterator[Prometheus]:
    """One that reads ``targets`` (address: labels of what it finds there) each second, until the block ends."""
    jobs = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
    with configured(folder, [{"job_name": "stowplan", "static_configs": jobs}]) as found:
        yield found


@contextmanager
def configured(
    folder: Path, jobs: Sequence[Mapping[str, Any]], rules: Mapping[str, Any] | None = None
) -> Iterator[Prometheus]:
    """One with these scrape configurations and groups of rules, both worked on each second, until the block ends."""
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [dict(job) for job in jobs],
    }
    (folder / "rules.yml").write_text(yaml.safe_dump(rules or {"groups": []}))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    address, log = f"127.0.0.1:{free_port()}", folder / "prometheus.log"
    command = [
        program("prometheus", folder / "apt.log"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with log.open("w") as out:
        # What it reads is on this machine: no proxy stands in between.
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | {"NO_PROXY": "*"})
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=10, trust_env=False) as client:
            until(lambda: client.get("/-/ready").status_code == 200, process, log)
            yield Prometheus(client)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
