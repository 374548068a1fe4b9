"""The alerts, by promtool on what the chart renders: they parse, fire when they should, and each has its runbook."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from localcluster import packages
from localcluster.chart import template
from localcluster.errors import ClusterError
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_operator.metrics import Metrics

HERE = Path(__file__).parent
RUNBOOKS = HERE.parents[2] / "docs" / "alerts.md"


def rules(**values: Any) -> dict[str, Any]:
    objects = template({"prometheusRule": {"enabled": True}, **values})
    (found,) = [item["spec"] for item in objects if item["kind"] == "PrometheusRule"]
    spec: dict[str, Any] = found
    return spec


def alerts() -> list[dict[str, Any]]:
    return [rule for group in rules()["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prometheus' own checker; it is installed where Debian's packages can be."""
    if (found := packages.program("promtool")) is not None:
        return found
    if os.geteuid() == 0 and packages.program("apt-get") is not None:
        packages.install(("prometheus",), tmp_path_factory.mktemp("apt") / "log", "This test")
        return str(packages.program("promtool"))
    if os.environ.get("CI") == "true":
        raise ClusterError("promtool is not here and cannot be installed; install Debian's package prometheus.")
    pytest.skip("there is no promtool; install Debian's package prometheus, or Prometheus itself")


def run(promtool: str, *arguments: object, cwd: Path) -> str:
    done = subprocess.run([promtool, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the rules as the chart renders them, and their test beside them."""
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules(), sort_keys=False))
    (tmp_path / "alerts_test.yaml").write_text((HERE / "alerts_test.yaml").read_text())
    return tmp_path


def test_the_rules_are_valid(promtool: str, written: Path) -> None:
    said = run(promtool, "check", "rules", "alerts.yaml", cwd=written)
    assert f"{len(alerts())} rules found" in said


def test_every_alert_fires_when_it_should_and_not_before(promtool: str, written: Path) -> None:
    assert "SUCCESS" in run(promtool, "test", "rules", "alerts_test.yaml", cwd=written)
    cases = [
        case
        for test in yaml.safe_load((written / "alerts_test.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in alerts()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


def test_every_metric_in_an_alert_exists() -> None:
    families = [*AgentMetrics(CollectorRegistry()).registry.collect(), *Metrics().registry.collect()]
    names = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert {word for rule in alerts() for word in re.findall(r"\bstowplan_\w+", rule["expr"])} <= names


def test_every_alert_has_a_severity_and_a_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sections == list(dict.fromkeys(rule["alert"] for rule in alerts()))
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert {"summary", "description"} < rule["annotations"].keys()


def test_runbooks_may_be_served_elsewhere() -> None:
    spec = rules(prometheusRule={"enabled": True, "runbooks": "https://runbooks.example/stowplan"})
    urls = {rule["annotations"]["runbook_url"] for group in spec["groups"] for rule in group["rules"]}
    assert all(url.startswith("https://runbooks.example/stowplan#stowplan") for url in urls)


def test_a_watch_is_stale_after_three_lists_that_did_not_come() -> None:
    (stale,) = [
        rule for group in rules(resyncSeconds=60)["groups"] for rule in group["rules"] if "Stale" in rule["alert"]
    ]
    assert stale["expr"].endswith("> 180")
