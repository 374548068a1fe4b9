"""Who the agent is: whole, absent, or an error in one sentence; and how it reaches the API server."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stowplan_agent.cluster.boot import count_boot, new_agent
from stowplan_agent.cluster.client import ApiServerError, in_cluster
from stowplan_agent.cluster.identity import read_identity
from stowplan_agent.cluster.local import LocalReporter
from stowplan_agent.cluster.reporter import Reporter
from stowplan_api.model import ContractError
from stowplan_api.residency_placement import PhaseStatus, Rollback

SPEC = {
    "model": {"source": "file:///models/tiny-wan"},
    "workload": {"shapes": [{"name": "clip", "width": 64, "height": 64, "frames": 9, "steps": 4}]},
    "resources": {"gpus": 0, "memory": "2Gi"},
}
POD = {
    "STOWPLAN_SPEC": json.dumps(SPEC),
    "STOWPLAN_DEPLOYMENT": "wan",
    "STOWPLAN_NAMESPACE": "default",
    "STOWPLAN_POD_NAME": "wan-abc",
    "STOWPLAN_POD_UID": "uid-1",
    "STOWPLAN_MEMORY_LIMIT": "2147483648",
}


def test_outside_a_pod_there_is_no_identity() -> None:
    assert read_identity({"PATH": "/bin", "STOWPLAN_FAULTS": "x"}) is None


def test_inside_a_pod_everything_is_known() -> None:
    identity = read_identity(POD | {"STOWPLAN_ACCELERATOR": "emulated"})
    assert identity is not None
    assert (identity.deployment, identity.namespace, identity.pod_name, identity.pod_uid) == (
        "wan", "default", "wan-abc", "uid-1",
    )  # fmt: skip
    assert identity.memory_limit == 2 << 30 and identity.accelerator == "emulated"
    assert identity.spec.workload.shapes[0].frames == 9 and identity.spec.resources.memory == 2 << 30
    plain = read_identity(POD)
    assert plain is not None and plain.accelerator is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"STOWPLAN_POD_UID": ""}, "not STOWPLAN_POD_UID"),
        ({"STOWPLAN_SPEC": "", "STOWPLAN_NAMESPACE": ""}, "STOWPLAN_SPEC, STOWPLAN_NAMESPACE"),
        ({"STOWPLAN_SPEC": "{"}, "STOWPLAN_SPEC"),
        ({"STOWPLAN_SPEC": json.dumps(SPEC | {"replica": 1})}, "replica"),
        ({"STOWPLAN_MEMORY_LIMIT": "much"}, "STOWPLAN_MEMORY_LIMIT: 'much' is not a quantity"),
    ],
)
def test_half_an_identity_is_an_error(change: dict[str, str], says: str) -> None:
    with pytest.raises(ContractError, match=says) as caught:
        read_identity(POD | change)
    assert "\n" not in str(caught.value)


def test_the_api_server_is_reached_without_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_text("certificate")
    configuration = in_cluster({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    configuration.get_api_key_with_prefix("BearerToken")  # refreshes the token, and sets the host again
    assert configuration.host == "https://10.96.0.1:443"
    assert configuration.proxy is None


def test_outside_a_cluster_there_is_no_api_server(tmp_path: Path) -> None:
    with pytest.raises(ApiServerError, match="from inside a pod"):
        in_cluster({}, tmp_path)


def test_the_local_reporter_prints_each_phase_once_as_it_ends() -> None:
    stream = io.StringIO()
    local = LocalReporter(new_agent(datetime(2026, 1, 1, tzinfo=UTC), "0.1.0"), memory_bytes=1 << 30, stream=stream)
    reporter: Reporter = local
    assert reporter.read_spec().limits.memory_bytes == 1 << 30
    load = PhaseStatus(name="Load", started_at="2026-01-01T00:00:00Z")
    reporter.report(reporter.status.model_copy(update={"phase": "Load", "phases": (load,)}))
    done = load.model_copy(update={"milliseconds": 1234})
    warm = PhaseStatus(name="Warm", started_at="2026-01-01T00:00:01Z")
    reporter.report(reporter.status.model_copy(update={"phase": "Warm", "phases": (done, warm)}))
    rollback = Rollback(time="2026-01-01T00:00:02Z", reason="TooSlow", message="2 s instead of 1 s", from_="a", to="b")
    reporter.report(reporter.status.model_copy(update={"rollbacks": (rollback,)}))
    assert reporter.flush(0)
    reporter.close()
    assert [line.split() for line in stream.getvalue().splitlines()] == [
        ["Load", "1.23", "s"],
        ["rolled", "back", "(TooSlow):", "2", "s", "instead", "of", "1", "s"],
    ]


def test_boots_of_a_pod_are_counted_where_something_outlives_a_container(tmp_path: Path) -> None:
    assert [count_boot(tmp_path, "uid-1") for _ in range(3)] == [0, 1, 2]
    assert count_boot(tmp_path, "uid-2") == 0, "a volume that pods share counts each of them"
    agent = new_agent(datetime(2026, 1, 2, tzinfo=UTC), "0.1.0", count_boot(tmp_path, "uid-1"))
    assert agent.to_json()["earlierBoots"] == 3


def test_where_nothing_can_be_kept_no_count_is_claimed(tmp_path: Path) -> None:
    assert count_boot(tmp_path / "absent", "uid-1") is None
