"""The main job on a real cluster with the real operator and the real agent: apply, wait for Ready, and it is right.

Every other test of the cluster plays one of the two parts; here both are the product, on an emulated card. One module,
one release of the chart with all of its toggles for monitoring, one pod a story; and a real Prometheus that finds both
parts by the chart's own monitors and alerts by its own rules.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dashboard_queries
from cluster import monitors, product
from cluster.played import until
from cluster.stories import NAME, Story
from localcluster import chart
from localcluster.client import Cluster
from scraping import Prometheus, configured
from stowplan_agent.serving.drift import LEAST
from stowplan_api.contract import READINESS_GATE

QUIET = 20
"""Polls, a tenth of a second apart, in which the operator wrote nothing."""
MONITORING: dict[str, Any] = {
    "serviceMonitor": {"enabled": True, "interval": "1s"},
    "podMonitor": {"enabled": True, "interval": "1s"},
    "prometheusRule": {"enabled": True},
    "grafanaDashboard": {"enabled": True},
}


@pytest.fixture(scope="module")
def installed(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The chart with a tiny checkpoint mounted at /models; removed afterwards with its CRDs."""
    with monitors.served(local_cluster), product.installed(local_cluster, tmp_path_factory, MONITORING) as cluster:
        yield cluster


@dataclass(frozen=True)
class Watched:
    """A Prometheus, and the folder from which it has its targets."""

    prometheus: Prometheus
    folder: Path


@pytest.fixture(scope="module")
def watched(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Debian's Prometheus, which reads what the installed monitors select, and works on the installed rules."""
    kinds = ",".join(f"{plural}.{monitors.GROUP}" for plural in monitors.KINDS.values())
    objects = installed.json("-n", chart.NAMESPACE, "get", kinds)["items"]
    folder = tmp_path_factory.mktemp("prometheus")
    monitors.discover(installed, folder)
    with configured(folder, monitors.scrape_configs(objects, folder), monitors.rules(objects)) as found:
        yield Watched(found, folder)


@pytest.fixture
def story(installed: Cluster, namespace: str) -> Story:
    return Story(installed, namespace)


def test_ready_only_after_proof_then_restarted_then_deleted(story: Story) -> None:
    story.apply()
    # While it measures: Running, not Ready, gate False, 503.
    until(lambda: story.get("pods")["items"] and story.pod()["status"].get("phase") == "Running", "the pod runs")
    until(lambda: story.health() == 503, "the agent's server answers 503")
    assert story.gate() == "False"
    assert story.condition(f"dd/{NAME}", "Ready")["status"] != "True"

    story.wait(NAME)
    status = story.placement()
    assert story.gate() == "True" and story.health() == 200
    assert status["phase"] == "Ready" and status["validation"]["bitEqual"] is True
    assert status["plan"]["predictedPeakBytes"] == status["validation"]["peakBytes"] == status["ranks"][0]["peakBytes"]
    assert (
        abs(status["plan"]["predictedMilliseconds"] - status["validation"]["milliseconds"])
        <= 0.02 * (status["validation"]["milliseconds"])
    )
    resident, layers = map(int, status["resident"].split("/"))
    assert 0 < resident < layers, "a card of 40 MiB keeps a part"
    first = story.request()
    assert first[4:8] == b"ftyp"

    _the_operator_restarts_and_writes_nothing(story)
    _a_killed_container_closes_the_gate_until_its_new_boot_validates(story)
    assert story.request() == first, "the same seed gives the same video in the next boot"

    story.kubectl("delete", f"dd/{NAME}", "--wait")
    kinds = "rp,deployment,replicaset,pod,service,serviceaccount,rolebinding,pdb,configmap"
    until(lambda: not re.search(NAME, story.kubectl("get", kinds, "-o", "name")), "nothing is left", seconds=90)


def test_a_larger_card_keeps_everything(story: Story) -> None:
    story.apply("tiny-wan-large")
    story.wait("tiny-wan-large")
    resident, layers = map(int, story.placement()["resident"].split("/"))
    assert resident == layers > 0


def test_too_small_a_card_stays_unready_and_says_what_is_short(story: Story) -> None:
    story.apply("tiny-wan-small")
    until(lambda: story.condition("dd/tiny-wan-small", "Stalled").get("status") == "True", "it stalls", seconds=240)
    assert story.gate() == "False" and story.health() == 503
    told = story.kubectl("describe", "dd", "tiny-wan-small")
    assert re.search(r"interval \d+ \(vae decode\) .* \d+ bytes more than the 28 MiB there are", told), told
    assert re.search(r"would fit: .* of device memory", told), told
    assert story.pod()["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_fault_in_validation_rolls_back_is_told_and_is_seen(story: Story, watched: Watched) -> None:
    story.apply(
        serving={"env": [{"name": "STOWPLAN_FAULTS", "value": "validate.output"}]},
        podTemplate={"spec": {"terminationGracePeriodSeconds": 2}},
    )
    until(story.health, "the agent's server answers", seconds=240)
    began = time.time()
    monitors.discover(story.cluster, watched.folder)
    until(lambda: story.condition(f"dd/{NAME}", "Degraded").get("status") == "True", "it is degraded", seconds=240)
    story.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    rolled = story.condition("rp", "RolledBack")
    assert (rolled["status"], rolled["reason"]) == ("True", "OutputDiffers")
    dd = story.get(f"dd/{NAME}")["status"]
    assert story.condition(f"dd/{NAME}", "Degraded")["reason"] == "PlacementRolledBack"
    assert dd["lastRollback"]["reason"] == "OutputDiffers" and dd["rollbacks"] == 1
    events = story.get("events")["items"]
    assert any(event["type"] == "Warning" and event["reason"] == "PlacementRolledBack" for event in events)
    assert 'stowplan_rollbacks_total{reason="OutputDiffers"} 1.0' in story.metrics()
    _every_panel_has_data_and_one_alert_fires(story, watched.prometheus, began)
    _the_marks_are_drawn(story, watched, began)


def _the_operator_restarts_and_writes_nothing(story: Story) -> None:
    # The story's own last writes (Events come after the status) are over once none was made for a while.
    seen = [_written(story)]

    def quiet() -> bool:
        seen.append(_written(story))
        return len(seen) > QUIET and len(seen[-1]) == len(seen[-QUIET])

    until(quiet, "the operator is quiet")
    before = seen[-1]
    story.cluster.kubectl("-n", chart.NAMESPACE, "rollout", "restart", "deployment/stowplan-operator")
    story.cluster.kubectl("-n", chart.NAMESPACE, "rollout", "status", "deployment/stowplan-operator", "--timeout=120s")
    after = _written(story)
    assert after == before


def _every_panel_has_data_and_one_alert_fires(story: Story, prometheus: Prometheus, began: float) -> None:
    mine = f'namespace="{story.namespace}"'
    assert prometheus.until(f"stowplan_placement_validated{{{mine}}} == 1")
    for _ in range(LEAST):
        story.request()
    (found,) = prometheus.until(f'stowplan_requests_total{{{mine}, status="completed"}} == {LEAST}')
    pod = story.pod()["metadata"]["name"]
    assert (found["metric"]["pod"], found["metric"]["diffusion_deployment"]) == (pod, NAME)
    assert {one["metric"]["job"] for one in prometheus.ask("up == 1")} == {
        f"{chart.NAMESPACE}/stowplan-serving",
        "stowplan-operator-metrics",
    }
    asked = {name: _chosen(query, story) for name, query in dashboard_queries.of_panels().items()}
    soon = time.time() + 1  # of whole seconds since then, the one after the newest reading
    empty = [name for name, query in asked.items() if not prometheus.over(query, began, soon)]
    assert empty == [dashboard_queries.OF_A_REAL_CARD], "an emulated card has no UUID that NVIDIA's exporter could know"
    choices = {"namespace": story.namespace, "deployment": NAME, "pod": pod}
    for variable, query in dashboard_queries.of_variables().items():
        selector, _, label = _chosen(query, story).removeprefix("label_values(").removesuffix(")").rpartition(", ")
        assert choices[variable] in prometheus.values_of(label, selector)
    alerts = prometheus.alerts()
    firing = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
    assert [(alert["alertname"], alert["diffusion_deployment"], alert["reason"]) for alert in firing] == [
        ("StowplanPlacementRolledBack", NAME, "OutputDiffers")
    ], alerts


def _the_marks_are_drawn(story: Story, watched: Watched, began: float) -> None:
    """The gate opened, the plan went back, and with its last pod the gate is closed."""
    story.kubectl("delete", f"dd/{NAME}")
    story.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=90s")
    monitors.discover(story.cluster, watched.folder)
    up = f'up{{namespace="{story.namespace}"}}'
    until(lambda: not watched.prometheus.ask(up), "the pod is not read any more")
    for name, query in dashboard_queries.of_marks().items():
        # They compare with a minute before: of what was last read, that is a minute from now.
        assert watched.prometheus.over(_chosen(query, story), began, time.time() + 60), f"{name} was never drawn"


def _chosen(query: str, story: Story) -> str:
    return dashboard_queries.chosen(query, namespace=story.namespace, deployment=NAME, pod=".*", window="30s")


def _written(story: Story) -> list[str]:
    """Writes of the operator to this namespace, from the API server's own audit log."""
    return [
        json.dumps([entry["verb"], entry["objectRef"]], sort_keys=True)
        for entry in story.cluster.audit()
        if "stowplan-operator" in entry["user"]["username"]
        and entry["objectRef"].get("namespace") == story.namespace
        and entry["verb"] not in ("get", "list", "watch")
    ]


def _a_killed_container_closes_the_gate_until_its_new_boot_validates(story: Story) -> None:
    boot = story.placement()["agent"]["bootId"]
    pod = story.pod()
    _kill(pod["metadata"]["uid"])
    until(lambda: story.gate() == "False", "the gate closes")
    until(lambda: story.condition(f"dd/{NAME}", "Ready")["status"] != "True", "the deployment is not Ready any more")
    until(lambda: story.placement()["agent"]["bootId"] != boot, "the new boot reports", seconds=120)
    name = pod["metadata"]["name"]
    story.kubectl("wait", f"--for=condition={READINESS_GATE}", f"pod/{name}", "--timeout=240s")
    # The gate opened for this boot: its own placement says so, and nothing of the old boot is left in it.
    assert story.condition("rp", "Validated")["status"] == "True"
    assert story.placement()["agent"]["bootId"] != boot
    story.wait(NAME)


def _kill(uid: str) -> None:
    """SIGKILL to the agent of a pod, from outside as the kernel's out-of-memory killer would."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = uid in (process / "cgroup").read_text() and b"stowplan" in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mine:
            os.kill(int(process.name), signal.SIGKILL)
