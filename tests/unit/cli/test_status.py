"""A namespace in a terminal: views from what an API server lists, their drawing, and the commands on a real client."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_lists import DEPLOYMENTS, GIB, PLACEMENTS, PODS, api_server, deployment, placement, pod
from rich.console import Console
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_agent.cluster.client import ApiServerError
from stowplan_agent.report.explained_deployment import explained, explained_lines
from stowplan_agent.report.namespace import DeploymentView, Memory, PodView, deployments_of
from stowplan_agent.report.namespace_view import LEGEND, bar, namespace_view, phase_words

status_command = sys.modules["stowplan_agent.cli.status"]
"""The module; its package has the command under the same name."""
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def views() -> tuple[DeploymentView, ...]:
    return deployments_of(DEPLOYMENTS, PLACEMENTS, PODS, NOW)


def pods() -> dict[str, PodView]:
    return {one.name: one for view in views() for one in view.pods}


def text(found: tuple[DeploymentView, ...], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(namespace_view(found, "namespace studio"))
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


def test_deployments_are_in_order_with_what_the_operator_says() -> None:
    flux, wan = views()
    assert (flux.name, flux.reason, flux.message, flux.validated, flux.rollbacks, flux.well) == (
        "flux", "PodFailed", "a container was killed for memory", 0, 1, False,
    )  # fmt: skip
    assert (wan.name, wan.well, wan.validated, wan.replicas, wan.seconds, wan.message) == (
        "wan22", True, 2, 2, "14.1s", "",
    )  # fmt: skip
    assert [one.name for one in flux.pods] == ["flux-a", "flux-b", "flux-c"]


@pytest.mark.parametrize(
    ("name", "phase", "gate", "message"),
    [
        ("wan22-a", "Ready", "open", ""),
        ("wan22-b", "Probe", "closed", ""),
        ("flux-a", "Running", "closed", "CrashLoopBackOff after OOMKilled (exit code 137): back-off 40s restarting"),
        ("flux-b", "Pending", "-", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        ("flux-c", "RolledBack", "open", "rolled back (TooSlow): 9 % slower"),
    ],
)
def test_a_pod_is_its_phase_its_gate_and_what_stops_it(name: str, phase: str, gate: str, message: str) -> None:
    found = pods()[name]
    assert (found.phase, found.gate, found.message) == (phase, gate, message)


def test_a_phase_that_runs_says_how_far_and_how_long() -> None:
    assert phase_words(pods()["wan22-b"]) == "Probe 4/8, 30 s"
    assert phase_words(pods()["wan22-a"]) == "Ready"
    assert phase_words(replace(pods()["wan22-b"], since=1230.0)) == "Probe 4/8, 20 min"


@pytest.mark.parametrize(
    "raw",
    [
        ({"metadata": {"name": "a"}},),
        ({"metadata": {"name": "a", "namespace": "n"}, "status": None, "spec": {"model": None}},),
        ({"metadata": {"name": "a", "namespace": "n"}, "status": {"conditions": None, "future": 1}},),
    ],
)
def test_half_written_objects_have_views(raw: Any) -> None:
    (found,) = deployments_of(raw, [placement("p", "Sleeping", ranks=[{}])], [pod("p", "a")], NOW)
    assert (found.ready, found.validated, found.well) == ("Unknown", 0, False)
    assert text((found,))


@pytest.mark.parametrize(
    ("components", "peak", "reserve", "drawn"),
    [
        ((20, 4), 30, 2, "██████" + "▒▒" + "·" + "░"),
        ((), 0, 4, "·" * 9 + "░"),
        ((40,), 40, 0, "█" * 10),
        ((0, 0), 40, 4, "▒" * 10),
        ((80,), 90, 2, "█" * 10),
    ],
)
def test_the_bar_of_a_device(components: tuple[int, ...], peak: int, reserve: int, drawn: str) -> None:
    held = tuple((f"part-{number}", nbytes * GIB) for number, nbytes in enumerate(components))
    assert bar(Memory(held, peak * GIB, reserve * GIB, 40 * GIB), width=10).plain == drawn


def test_all_of_it_is_in_the_terminal_at_any_width() -> None:
    for width in (60, 80, 120):
        said = text(views(), width)
        assert max(len(line) for line in said.splitlines()) <= width
        whole = "".join(said.split())
        for words in ("studio/wan22", "RolledOut", "2/2validated", "wan22-b", "CrashLoopBackOff", "1rollback", "open"):
            assert words in whole, (width, words)
        bars = [line for line in said.splitlines() if "▒" in line and "weights by" not in line]
        assert len(bars) == 2 and all("░" in line for line in bars), "a bar is one line, shorter where there is no room"
    assert LEGEND in text(views()) and "30 GiB of 40 GiB" in text(views())
    assert "kubectl apply" in text(())


def test_the_command_prints_once_where_nobody_watches(tmp_path: Path) -> None:
    with api_server(tmp_path) as config:
        done = CliRunner().invoke(app, ["status", "--kubeconfig", str(config)])
        assert done.exit_code == 0 and "studio/flux" in done.output
        one = CliRunner().invoke(app, ["status", "wan22", "--kubeconfig", str(config), "--json"])
        (found,) = json.loads(one.output)["deployments"]
        assert found["name"] == "wan22" and found["pods"][0]["memory"]["capacity"] == 40 * GIB
        gone = CliRunner().invoke(app, ["status", "gone", "--kubeconfig", str(config)])
        assert gone.exit_code == 2 and "there is no DiffusionDeployment gone in namespace studio" in gone.output


def test_who_watches_sees_what_changes_and_when_the_cluster_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Console(file=io.StringIO(), width=100, force_terminal=True)
    monkeypatch.setattr(status_command, "out", seen)
    looks: list[Any] = [views()[1:], ApiServerError("the API server cannot be reached"), KeyboardInterrupt()]

    def look() -> tuple[DeploymentView, ...]:
        now = looks.pop(0)
        if isinstance(now, BaseException):
            raise now
        found: tuple[DeploymentView, ...] = now
        return found

    status_command._watch(look, views()[:1], "namespace studio", lambda: None)
    said: str = seen.file.getvalue()  # type: ignore[attr-defined]
    order = [said.index(words) for words in ("studio/flux", "studio/wan22", "not since the last look: the API server")]
    assert order == sorted(order) and not looks
    assert said.rindex("studio/wan22") > order[1], "what was seen last stays below a failure"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"pods": (403, {"message": "User u cannot list pods"})}, "you may not list pods in namespace studio (User u"),
        ({"diffusiondeployments": (404, {})}, "this cluster has no diffusiondeployments; install the chart"),
        ({"pods": (500, {"message": "etcd is away"})}, "the API server answered 500 for pods"),
    ],
)
def test_a_refusal_is_one_sentence(tmp_path: Path, answers: Any, said: str) -> None:
    with api_server(tmp_path, answers) as config:
        done = CliRunner().invoke(app, ["status", "--once", "--kubeconfig", str(config)])
    assert done.exit_code == 1 and said in done.output, done.output


def test_no_cluster_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for arguments in (["--kubeconfig", str(tmp_path / "none")], ["--context", "none"]):
        done = CliRunner().invoke(app, ["status", *arguments])
        assert done.exit_code == 1 and "the kubeconfig cannot be used" in done.output, done.output


@pytest.mark.parametrize(
    "content", [b"a: [", b"[]", b"root:x:0", b"\xd0\x00", b"3", b"contexts: [x]\ncurrent-context: x"]
)
def test_what_is_no_kubeconfig_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    for config in (path, tmp_path):
        done = CliRunner().invoke(app, ["status", "--kubeconfig", str(config)])
        assert (done.exit_code, done.exception.__class__) == (1, SystemExit), done.output
        assert "stowplan: the kubeconfig cannot be" in done.output and done.output.count("\n") == 1


def test_reasons_of_a_deployment_are_its_pods_own_words(tmp_path: Path) -> None:
    with api_server(tmp_path) as config:
        done = CliRunner().invoke(app, ["explain", "dd/wan22", "--kubeconfig", str(config)])
        assert done.exit_code == 0, done.output
        for words in ("studio/wan22: RolledOut", "transformer: Layerwise, 30 of 40 layers resident",
                      "because device memory: 31 are 200 MiB short", "proof: bit-equal; 14.1 s"):  # fmt: skip
            assert words in done.output
        as_json = CliRunner().invoke(app, ["explain", "dd/flux", "--kubeconfig", str(config), "--output", "json"])
        found = json.loads(as_json.output)
        assert found["pods"][2]["rollbacks"][0]["why"] == "TooSlow: 9 % slower"
        assert found["pods"][2]["components"][1]["because"] == "", "the plan that was taken back is no reason"
        none = CliRunner().invoke(app, ["explain", "dd/none", "--kubeconfig", str(config)])
        assert none.exit_code == 2 and "there is no DiffusionDeployment none" in none.output
        other = CliRunner().invoke(app, ["explain", "dd/wan22", "--device-memory", "24Gi"])
        assert other.exit_code == 2 and "as its pods wrote it down" in other.output


def test_a_status_of_another_version_is_explained_as_far_as_it_is_known() -> None:
    odd = placement("a", "Ready", future={"x": 1}, components=[{"name": "vae"}])
    (view,) = deployments_of(
        [deployment("d", ready=("True", "RolledOut", ""), validated=1)], [odd], [pod("a", "d")], NOW
    )
    lines = explained_lines(explained(view, [odd]))
    assert lines[2:] == ["pod a: Ready", "  this version cannot read components of its status"]
