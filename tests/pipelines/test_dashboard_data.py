"""Every query of the dashboard has data once a real Prometheus read a real agent that started, served and went back.

The agent is a process on the emulated card that is asked over HTTP. The operator's numbers are set as its worker,
resync and client set them; DCGM's page is written here, in the form of its exporter, beside a pod on that card.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from typer.testing import CliRunner

import dashboard_queries
from scraping import Prometheus, free_port, prometheus, until
from stowplan_agent.cli import app
from stowplan_agent.serving.drift import LEAST
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_operator.metrics import Metrics

UUID = "GPU-00000000-0000-0000-0000-000000000000"
MOMENTS = {"Gate closed"}
"""Of no series as long as all is well: it is judged by what it says of the moment before the agent began."""


@contextmanager
def agent(checkpoint: Path, folder: Path) -> Iterator[tuple[httpx.Client, str]]:
    """A ``stowplan agent`` that took its plan back and serves; a client of it, and its address."""
    address, log = f"127.0.0.1:{free_port()}", folder / "agent.log"
    command = [sys.executable, "-c", "from stowplan_agent.cli import app; app()", "agent", str(checkpoint)]
    command += ["--shape", "square=32x32@1", "--accelerator", "emulated", "--device-memory", "24Mi"]
    command += ["--device-reserve", "1Mi", "--dtype", "float32", "--port", address.rpartition(":")[2]]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=120, trust_env=False) as client:
            until(lambda: client.get("/health").status_code == 200, process, log)
            process.send_signal(signal.SIGUSR1)
            until(lambda: client.get("/health").json()["phase"] == "RolledBack", process, log)
            until(lambda: client.get("/health").status_code == 200, process, log)
            yield client, address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@dataclass(frozen=True)
class Scraped:
    """What was read, and a client of the agent."""

    prometheus: Prometheus
    agent: httpx.Client


@contextmanager
def page(registry: CollectorRegistry) -> Iterator[str]:
    """Metrics that somebody else exposes; its address."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def reconciled(metrics: Metrics) -> None:
    """A reconcile that opened a gate, as the operator's parts tell of it."""
    metrics.reconciles.labels(kind="DiffusionDeployment", result="written").inc()
    metrics.reconcile_duration.labels(kind="DiffusionDeployment").observe(0.02)
    metrics.gate_latency.observe(0.4)
    for kind in ("DiffusionDeployment", "ResidencyPlacement", "Pod"):
        metrics.last_event.labels(kind=kind).set_to_current_time()
        metrics.objects.labels(kind=kind).set(1)
        metrics.count_request("patch", kind)


def on_a_card_that_dcgm_knows() -> tuple[CollectorRegistry, CollectorRegistry]:
    ours = AgentMetrics(CollectorRegistry())
    ours.set_placement(plan="seed", device="H200", uuid=UUID, product="H200")
    dcgm = CollectorRegistry()
    Gauge("DCGM_FI_DEV_FB_USED", "Framebuffer used, MiB.", ["UUID", "gpu"], registry=dcgm).labels(UUID, "0").set(21)
    return ours.registry, dcgm


@pytest.fixture(scope="module")
def scraped(tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder, operator = tmp_path_factory.mktemp("scraped"), Metrics()
    with ExitStack() as stack:
        client, address = stack.enter_context(agent(tiny_flux, folder))
        pages = [stack.enter_context(page(one)) for one in (operator.registry, *on_a_card_that_dcgm_knows())]
        whose = ({"pod": "operator"}, {"diffusion_deployment": "other", "pod": "kites-dcgm"}, {"pod": "dcgm-exporter"})
        targets = {address: {"diffusion_deployment": "kites", "pod": "kites-a"}} | dict(zip(pages, whose, strict=True))
        named = {where: {"namespace": "studio", **labels} for where, labels in targets.items()}
        found = stack.enter_context(prometheus(folder, named))
        reconciled(operator)
        # A rate needs two readings: one of each before, and what comes after.
        assert found.until("stowplan_operator_reconciles_total") and found.until("stowplan_placement_validated == 1")
        for _ in range(LEAST):
            answer = client.post("/v1/images/generations", json={"prompt": "a red kite over the dunes"})
            assert answer.status_code == 200, answer.text
        reconciled(operator)
        yield Scraped(found, client)


QUERIES = dashboard_queries.of_panels() | dashboard_queries.of_marks()


def filled(query: str) -> str:
    """A query, or that of a panel or a mark by its name, with the variables chosen."""
    asked = QUERIES.get(query, query)
    return dashboard_queries.chosen(asked, namespace=".*", deployment="kites|other", pod="kites-.*", window="20s")


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in MOMENTS])
def test_a_query_has_data(scraped: Scraped, name: str) -> None:
    assert scraped.prometheus.until(filled(name))


def test_what_the_panels_show_is_what_the_agent_did(scraped: Scraped) -> None:
    def value(query: str) -> float:
        (found,) = scraped.prometheus.until(filled(query))
        return float(found["value"][1])

    assert value('stowplan_requests_total{status="completed"} == 5') == LEAST
    assert value('stowplan_request_duration_seconds_count{shape="square"}') == LEAST
    within = value("sum(stowplan_request_stage_seconds_sum)") / value("stowplan_request_duration_seconds_sum > 0")
    assert 0 < within <= 1.0001, "components are parts of their requests"
    waits = value('stowplan_stream_wait_seconds_total{pod="kites-a"}')
    assert 0 < waits <= value("sum(stowplan_request_stage_seconds_sum)"), "the seed placement streams"
    assert value("sum(stowplan_rollbacks_total)") == 1
    dcgm = scraped.prometheus.until(filled(dashboard_queries.OF_A_REAL_CARD))
    assert [(one["metric"]["pod"], float(one["value"][1])) for one in dcgm] == [("kites-dcgm", 21 << 20)]


def test_the_mark_of_a_closed_gate_needs_one_that_was_open(scraped: Scraped) -> None:
    assert scraped.prometheus.ask(filled("Gate closed")) == []


def test_what_the_agent_answers_at_residency_is_a_page_and_what_report_reads(scraped: Scraped, tmp_path: Path) -> None:
    shown = scraped.agent.get("/residency", headers={"Accept": "text/html"}).text
    for title in ("Device memory through the request", "Which card", "How the pod started", "Rollbacks"):
        assert f">{title}</h2>" in shown
    kept, made = tmp_path / "residency.json", tmp_path / "page.html"
    kept.write_bytes(scraped.agent.get("/residency").content)
    done = CliRunner().invoke(app, ["report", str(kept), "-o", str(made)])
    assert done.exit_code == 0, done.output
    assert made.read_text(encoding="utf-8") == shown
