"""A status of another version, or half written, still gives a view, which says what it could not read."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from stowplan_agent.report.explained_deployment import explained, explained_lines
from stowplan_agent.report.namespace import PodView, deployments_of
from stowplan_agent.report.namespace_view import namespace_json, namespace_view
from stowplan_api.contract import LABEL_DEPLOYMENT

NOW = datetime(2026, 11, 30, 12, 0, 10, tzinfo=UTC)


def pod_of(status: dict[str, Any]) -> PodView:
    """The one pod of a deployment as its views have it, all of which are drawn."""
    metadata = {"namespace": "n", "name": "p", "labels": {LABEL_DEPLOYMENT: "d"}}
    deployment = {"metadata": {"namespace": "n", "name": "d"}, "spec": {}, "status": {}}
    placement = {"metadata": metadata, "status": status}
    views = deployments_of([deployment], [placement], [{"metadata": metadata}], NOW)
    Console(file=io.StringIO(), width=80).print(namespace_view(views, "namespace n"))
    namespace_json(views)
    explained_lines(explained(views[0], [placement]))
    return views[0].pods[0]


@pytest.mark.parametrize(
    ("began", "since"),
    [
        ("2026-11-30T12:00:00Z", 10.0),
        ("2026-11-30T12:00:00.500Z", 9.5),
        ("2026-11-30T12:00:00.123456789Z", pytest.approx(9.876544)),
        ("2026-11-30T13:00:00+01:00", 10.0),
        ("2026-11-30T12:00:00", 10.0),
        ("2026-11-30T12:00:20Z", 0.0),  # by a clock that is ahead
    ],
)
def test_a_phase_began_whatever_digits_its_time_has(began: str, since: float) -> None:
    found = pod_of({"phase": "Load", "phases": [{"name": "Load", "startedAt": began}]})
    assert (found.since, found.message) == (since, "")


@pytest.mark.parametrize(
    ("status", "odd"),
    [
        ({"phases": [{"name": "Load", "startedAt": "noon"}]}, "phases.startedAt"),
        ({"phases": [{"name": "Load", "startedAt": 7}]}, "phases.startedAt"),
        ({"phases": ["Load"]}, "phases"),
        ({"phases": "Load", "ranks": [None]}, "phases, ranks"),
        ({"ranks": [{}], "components": ["vae"]}, "components"),
        ({"conditions": [None]}, "conditions"),
        ({"rollbacks": 3}, "rollbacks"),
    ],
)
def test_what_cannot_be_read_is_named(status: dict[str, Any], odd: str) -> None:
    assert pod_of(status).message == f"this version cannot read {odd} of its status"


@pytest.mark.parametrize(
    "status",
    [
        {"phase": 3},
        {"ranks": [{"device": None, "capacityBytes": None, "peakBytes": True}]},
        {"ranks": [{"capacityBytes": "12"}]},
        {"ranks": [{"capacityBytes": 10}], "components": [{"name": None, "deviceBytes": None}]},
        {"ranks": [{"capacityBytes": 10, "reserveBytes": 30, "peakBytes": 50}], "components": [{"deviceBytes": 90}]},
        {"validation": {"milliseconds": "12"}},
        {"conditions": [{"type": "Ready", "status": "False", "reason": 7, "message": None}], "phase": "Failed"},
    ],
)
def test_values_of_another_kind_are_left_out(status: dict[str, Any]) -> None:
    found = pod_of(status)
    assert (found.name, found.seconds, found.since) == ("p", "", None)
