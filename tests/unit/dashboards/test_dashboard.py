"""The dashboard: up to date, every query one that Prometheus parses, over metrics and labels that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, ProcessCollector

import dashboard_queries
from dashboard_queries import WRITTEN
from localcluster.chart import template
from scraping import program
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_operator.metrics import Metrics

ROOT = Path(__file__).parents[3]
OURS = {"namespace", "pod", "diffusion_deployment", "le", "UUID"}
"""Labels that the scrape or a query adds."""
ASKED = (
    "Device memory by component", "Planned against used", "Host memory locked against its budget",
    "Seconds a request by shape", "Where the seconds go", "Compute waits for weights", "Start-up phases",
    "The card as DCGM sees it",
)  # fmt: skip


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    return dashboard_queries.board()


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> dict[str, str]:
    """Every query of the dashboard by the panel, or the annotation, that asks it."""
    return dashboard_queries.of_panels(board) | dashboard_queries.of_marks(board)


def test_it_is_up_to_date(board: dict[str, Any]) -> None:
    code = "import sys; from dashboard.drawing import text; sys.stdout.write(text())"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "charts", capture_output=True, text=True, check=True, timeout=60
    )
    assert made.stdout == WRITTEN.read_text(encoding="utf-8"), "run `make manifests`"


def test_grafana_knows_every_field_that_is_written(board: dict[str, Any]) -> None:
    """What its published schema does not know is lost on the way through it; a mark's words are the data source's."""
    written = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    for entry, known in zip(board["annotations"]["list"], written["annotations"]["list"], strict=True):
        assert entry.keys() - known.keys() == {"titleFormat", "textFormat", "tagKeys", "step"}
        known |= {name: entry[name] for name in entry.keys() - known.keys()}
    assert written == board


def test_what_people_ask_has_a_panel_that_explains_itself(board: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in panels(board)]
    assert set(ASKED) <= set(titles) and len(set(titles)) == len(titles)
    assert {entry["name"] for entry in board["annotations"]["list"]} == {"Gate opened", "Gate closed", "Rolled back"}
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "namespace", "deployment", "pod"]
    for panel in panels(board):
        assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_lie_beside_one_another(board: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
        down = one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]
        assert not (across and down), (one, other)


def test_every_metric_and_label_in_a_query_exists(board: dict[str, Any]) -> None:
    labels: dict[str, set[str]] = {}
    for registry in (AgentMetrics(CollectorRegistry()).registry, Metrics().registry):
        for collector in list(registry._collector_to_names):
            if isinstance(collector, ProcessCollector):
                continue
            (family,) = collector.describe()
            ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
            for end in ends.get(family.type, ("",)):
                labels[family.name + end] = set(vars(collector)["_labelnames"])
    for where, query in queries(board).items():
        names = set(re.findall(r"\bstowplan_\w+", query))
        assert names and names <= labels.keys(), where
        known = set().union(*(labels[name] for name in names)) | OURS
        keys = {word for found in re.findall(r"by \(([\w, ]+)\)|on \((\w+)\)", query) for part in found
                for word in part.split(", ") if word}  # fmt: skip
        assert keys | set(re.findall(r"(\w+)=~?\"", query)) <= known, where


def test_promtool_parses_every_query(board: dict[str, Any], tmp_path: Path) -> None:
    asked = {name: query.replace("$__rate_interval", "5m") for name, query in queries(board).items()}
    rules = [{"record": f"panel:{number}:asked", "expr": query} for number, query in enumerate(asked.values())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool = program("promtool", tmp_path / "apt.log")
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_the_chart_brings_it_where_it_is_asked_to() -> None:
    before = template()
    values = {"grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "GPU"}}}
    (new,) = [item for item in template(values) if item not in before]
    kubernetes_validate.validate(new, "1.34", strict=True)
    assert new["kind"] == "ConfigMap" and new["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert new["metadata"]["annotations"] == {"grafana_folder": "GPU"}
    assert new["data"]["stowplan.json"].strip() == WRITTEN.read_text(encoding="utf-8").strip()
