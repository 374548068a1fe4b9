"""Whatever an API server lists, people get a view of it: every field of every object spoilt in every way, in turn."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_lists import DEPLOYMENTS, PLACEMENTS, PODS, api_server
from mutations import mutations
from rich.console import Console
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_agent.report.explained_deployment import explained, explained_lines
from stowplan_agent.report.namespace import DeploymentView, deployments_of
from stowplan_agent.report.namespace_view import namespace_json, namespace_view

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
RUNS = PLACEMENTS[1]["status"]["phases"]
PLACEMENT = PLACEMENTS[2] | {"status": PLACEMENTS[2]["status"] | {"phases": RUNS}}
LISTS = {"deployments": [DEPLOYMENTS[1]], "placements": [PLACEMENT], "pods": [PODS[2], PODS[4]]}


def views_of(lists: dict[str, Any]) -> tuple[DeploymentView, ...]:
    return deployments_of(lists["deployments"], lists["placements"], lists["pods"], NOW)


def lines_of(lists: dict[str, Any]) -> list[str]:
    return [line for view in views_of(lists) for line in explained_lines(explained(view, lists["placements"]))]


def drawn(views: tuple[DeploymentView, ...]) -> str:
    console = Console(file=io.StringIO(), width=100, markup=False)
    console.print(namespace_view(views, "namespace studio"))
    json.dumps(namespace_json(views))
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


def shown(lists: dict[str, Any]) -> str:
    """All that is printed of these lists."""
    return drawn(views_of(lists)) + "\n".join(lines_of(lists))


@pytest.mark.parametrize("what", list(LISTS))
def test_no_object_is_too_broken_to_be_shown(what: str) -> None:
    usual = views_of(LISTS)
    for place, change, text in mutations(LISTS[what]):
        if len(place) == 1:  # an entry of a list: what is no object does not come so far
            continue
        spoilt = LISTS | {what: json.loads(text)}
        try:
            lines_of(spoilt)
            if (views := views_of(spoilt)) != usual:  # drawing is slow
                drawn(views)
        except Exception as error:
            raise AssertionError(f"{what}: {place} {change}") from error


@pytest.mark.parametrize("status", ["Ready", ["Ready"], 3, True])
def test_a_status_that_is_no_object_is_said_to_be_none(status: object) -> None:
    broken = [PLACEMENT | {"status": status}]
    printed = shown(LISTS | {"placements": broken})
    assert printed.count("flux-c: this version cannot read its status, which is no object") == 1
    assert "pod flux-c: Running" in printed


def test_what_a_status_says_does_not_steer_the_terminal() -> None:
    text = json.dumps(LISTS).replace("9 % slower", "\\u001b[2J\\u202e\\u0007gone\\r\\n[/b]")
    printed = shown(json.loads(text))
    assert printed.count("gone  [/b]") >= 2
    assert {letter for letter in printed if not letter.isprintable()} == {"\n"}


@pytest.mark.parametrize(
    ("plural", "answer"),
    [("pods", "<html>log in</html>"), ("pods", {"items": None}), ("diffusiondeployments", []),
     ("residencyplacements", None)],
)  # fmt: skip
def test_what_is_no_api_server_is_one_sentence(tmp_path: Path, plural: str, answer: object) -> None:
    with api_server(tmp_path, {plural: (200, answer)}) as config:
        done = CliRunner().invoke(app, ["status", "--once", "--kubeconfig", str(config)])
    assert done.exit_code == 1
    assert f"what answers for {plural} is no API server" in done.output
