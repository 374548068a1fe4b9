"""The policy on a real API server: an agent writes the ResidencyPlacement of its own pod, whatever its role allows.

Two pods share one account here, as replicas do, so that only the token's pod tells them apart.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.releases import installed
from localcluster.client import Cluster
from stowplan_api.contract import AGENT_ROLE, agent_account

ACCOUNT = agent_account("wan22")
As = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """The chart, installed for this module."""
    with installed(cluster, wait=False) as summary:
        yield summary


@pytest.fixture
def agents(cluster: Cluster, release: dict[str, Any], namespace: str, tmp_path: Path) -> As:
    """Two pods of one agent account with a ResidencyPlacement each; gives kubectl arguments to speak as a pod."""
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGENT_ROLE}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": role,
            "subjects": [account],
        },
        namespace=namespace,
    )
    for name in ("one", "two"):
        pod = make_pod(cluster, namespace, name)
        cluster.apply(placement(name, pod["metadata"]["uid"]), namespace=namespace)
    config = cluster.json("config", "view", "--raw", "--minify")

    def speak_as(pod: str) -> list[str]:
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={pod}"]
        token = cluster.kubectl("--namespace", namespace, "create", "token", ACCOUNT, *bound)
        config["users"][0]["user"] = {"token": token}
        path = tmp_path / f"{pod}.json"
        path.write_text(json.dumps(config))
        return [f"--kubeconfig={path}", f"--namespace={namespace}"]

    return speak_as


def make_pod(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """A pod of the agent's account that no node ever takes."""
    container = {"name": "server", "image": "stowplan.dev/nothing:0"}
    spec = {"serviceAccountName": ACCOUNT, "containers": [container], "schedulerName": "none"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    created: dict[str, Any] = cluster.json(
        "--namespace", namespace, "create", "--filename=-", input=json.dumps(manifest)
    )
    return created


def placement(name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "ResidencyPlacement",
        "metadata": {"name": name},
        "spec": {
            "deployment": "wan22",
            "pod": {"name": name, "uid": uid},
            "generation": 1,
            "limits": {"memoryBytes": 1 << 30},
        },
    }


def report(name: str) -> list[str]:
    """kubectl arguments that write a status."""
    patch = json.dumps({"status": {"phase": "Load"}})
    return ["patch", f"rp/{name}", "--subresource=status", "--type=merge", f"--patch={patch}"]


def refusal(cluster: Cluster, *arguments: str, given: object = None) -> str:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cluster.kubectl(*arguments, input=None if given is None else json.dumps(given))
    return str(refused.value.stderr)


def test_the_policy_is_well_typed(cluster: Cluster, release: dict[str, Any]) -> None:
    name = "validatingadmissionpolicy/stowplan-agent-writes-own-placement"
    cluster.kubectl("wait", "--for=jsonpath={.status.observedGeneration}=1", name, "--timeout=30s")
    assert "expressionWarnings" not in cluster.json("get", name)["status"].get("typeChecking", {})


def test_an_agent_reports_for_its_own_pod(cluster: Cluster, agents: As, namespace: str) -> None:
    cluster.kubectl(*agents("one"), *report("one"))
    assert cluster.json("--namespace", namespace, "get", "rp/one")["status"]["phase"] == "Load"


def test_an_agent_cannot_report_for_another_pod(cluster: Cluster, agents: As) -> None:
    said = refusal(cluster, *agents("two"), *report("one"))
    assert "the status of ResidencyPlacement one may be written only with the token of its own pod" in said
    assert "this one is of pod two" in said


def test_an_agent_cannot_report_for_an_earlier_pod_of_its_name(cluster: Cluster, agents: As, namespace: str) -> None:
    cluster.kubectl("--namespace", namespace, "delete", "pod/one", "--now")
    make_pod(cluster, namespace, "one")
    assert "only with the token of its own pod" in refusal(cluster, *agents("one"), *report("one"))


def test_a_token_of_no_pod_reports_nothing(cluster: Cluster, agents: As, namespace: str, tmp_path: Path) -> None:
    config = cluster.json("config", "view", "--raw", "--minify")
    config["users"][0]["user"] = {"token": cluster.kubectl("--namespace", namespace, "create", "token", ACCOUNT)}
    (tmp_path / "podless.json").write_text(json.dumps(config))
    speak = [f"--kubeconfig={tmp_path / 'podless.json'}", f"--namespace={namespace}"]
    assert "this one is of no pod" in refusal(cluster, *speak, *report("one"))
