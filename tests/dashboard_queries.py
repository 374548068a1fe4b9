"""What the dashboard asks, read from the JSON that is delivered, so tests ask it of a Prometheus as Grafana does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WRITTEN = Path(__file__).parents[1] / "charts" / "stowplan" / "dashboards" / "stowplan.json"
OF_A_REAL_CARD = "The card as DCGM sees it A"
"""The one query that needs NVIDIA's exporter beside an NVIDIA card."""


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(WRITTEN.read_text(encoding="utf-8"))
    return found


def of_panels(shown: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Every query of a panel, by the panel's title and the query's letter."""
    return {
        f"{panel['title']} {query['refId']}": query["expr"]
        for panel in (board() if shown is None else shown)["panels"]
        for query in panel.get("targets", ())
    }


def of_marks(shown: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The query of every annotation, by its name."""
    return {entry["name"]: entry["expr"] for entry in (board() if shown is None else shown)["annotations"]["list"]}


def of_variables() -> dict[str, str]:
    """The query of every variable but the data source, by its name."""
    return {one["name"]: one["query"]["query"] for one in board()["templating"]["list"] if one["type"] == "query"}


def chosen(query: str, *, namespace: str, deployment: str, pod: str, window: str) -> str:
    """A query as Grafana sends it once the variables have these values."""
    values = {"$namespace": namespace, "$deployment": deployment, "$pod": pod, "$__rate_interval": window}
    for name, value in values.items():
        query = query.replace(name, value)
    return query
