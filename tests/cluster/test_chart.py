"""The chart on a real API server: it installs, upgrades and goes, and nobody gets a right beyond the one they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.releases import CRDS, OPERATOR, definitions, installed, values
from localcluster import chart
from localcluster.client import Cluster
from stowplan_api.contract import AGENT_ROLE, agent_account

ACCOUNT = agent_account("wan22")
As = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """The chart, installed for this module and removed after it with its CRDs and its namespace."""
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


def allowed(cluster: Cluster, *arguments: str) -> bool:
    """Whether the operator's account may do something in any namespace."""
    question = ["auth", "can-i", *arguments, f"--as={OPERATOR}", "--all-namespaces"]
    try:
        return cluster.kubectl(*question).strip() == "yes"
    except subprocess.CalledProcessError as error:
        assert error.stdout.strip() == "no", error.stderr
        return False


def test_the_operator_starts_and_stays_alive(local_cluster: Cluster, release: dict[str, Any]) -> None:
    assert release["status"] == "deployed"
    in_namespace = ("--namespace", chart.NAMESPACE)
    local_cluster.kubectl(*in_namespace, "rollout", "status", "deployment/stowplan-operator", "--timeout=120s")
    (pod,) = local_cluster.json(*in_namespace, "get", "pods")["items"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert "forbidden" not in local_cluster.kubectl(*in_namespace, "logs", "deployment/stowplan-operator").lower()


def test_the_operator_passes_the_restricted_profile(cluster: Cluster, release: dict[str, Any], namespace: str) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    (deployment,) = [item for item in chart.template() if item["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    template["spec"].pop("serviceAccountName")
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"]["name"] = "operator"
    said = cluster.kubectl(
        "--namespace", namespace, "create", "--dry-run=server", "--filename=-", input=json.dumps(pod)
    )
    assert "created" in said


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


@pytest.mark.parametrize(
    "attempt",
    [
        ["get", "pods"],
        ["get", "dd"],
        ["get", "secrets"],
        ["delete", "rp/one"],
        ["patch", "rp/one", "--type=merge", '--patch={"metadata":{"labels":{"a":"b"}}}'],
        ["get", "rp"],
    ],
    ids=lambda attempt: " ".join(attempt[:2]),
)
def test_an_agent_may_do_nothing_else(cluster: Cluster, agents: As, attempt: list[str]) -> None:
    assert "forbidden" in refusal(cluster, *agents("one"), *attempt)


@pytest.mark.parametrize(
    "question",
    [
        ["list", "diffusiondeployments.stowplan.dev"],
        ["patch", "diffusiondeployments.stowplan.dev", "--subresource=status"],
        ["create", "residencyplacements.stowplan.dev"],
        ["watch", "pods"],
        ["patch", "pods", "--subresource=status"],
        ["patch", "deployments.apps"],
        ["create", "services"],
        ["create", "serviceaccounts"],
        ["patch", "poddisruptionbudgets.policy"],
        ["create", "rolebindings.rbac.authorization.k8s.io"],
        ["create", "events.events.k8s.io"],
    ],
    ids=" ".join,
)
def test_the_operator_may(cluster: Cluster, release: dict[str, Any], question: list[str]) -> None:
    assert allowed(cluster, *question)


@pytest.mark.parametrize(
    "question",
    [
        ["get", "secrets"],
        ["patch", "diffusiondeployments.stowplan.dev"],
        ["patch", "residencyplacements.stowplan.dev", "--subresource=status"],
        ["patch", "pods"],
        ["delete", "pods"],
        ["delete", "deployments.apps"],
        ["create", "pods"],
        ["create", "pods", "--subresource=exec"],
        ["create", "clusterroles.rbac.authorization.k8s.io"],
        ["create", "serviceaccounts", "--subresource=token"],
        ["bind", "clusterroles.rbac.authorization.k8s.io/cluster-admin"],
        ["list", "nodes"],
        ["list", "customresourcedefinitions.apiextensions.k8s.io"],
    ],
    ids=" ".join,
)
def test_the_operator_may_not(cluster: Cluster, release: dict[str, Any], question: list[str]) -> None:
    assert not allowed(cluster, *question)


def test_the_operator_binds_the_agents_role_and_no_other(
    cluster: Cluster, release: dict[str, Any], namespace: str
) -> None:
    bind = ["--namespace", namespace, "create", "rolebinding", "a", "--serviceaccount=default:a", "--dry-run=server"]
    assert "created" in cluster.kubectl(*bind, f"--clusterrole={AGENT_ROLE}", f"--as={OPERATOR}")
    said = refusal(cluster, *bind, "--clusterrole=admin", f"--as={OPERATOR}")
    assert "attempting to grant RBAC permissions not currently held" in said


def test_an_upgrade_keeps_what_users_declared(cluster: Cluster, release: dict[str, Any], namespace: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "wan22.yaml"
    cluster.kubectl("--namespace", namespace, "apply", "--filename", str(example))
    before = cluster.json("--namespace", namespace, "get", "dd/wan22")["metadata"]
    upgraded = chart.install(cluster.kubeconfig, {**values(), "resyncSeconds": 60}, wait=False)
    assert (upgraded["revision"] > release["revision"], upgraded["status"]) == (True, "deployed")
    after = cluster.json("--namespace", namespace, "get", "dd/wan22")["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])
    (container,) = cluster.json("--namespace", chart.NAMESPACE, "get", "deployment/stowplan-operator")["spec"][
        "template"
    ]["spec"]["containers"]
    assert {"name": "STOWPLAN_RESYNC_SECONDS", "value": "60"} in container["env"]


def test_definitions_that_are_kept_outlive_the_release(cluster: Cluster, release: dict[str, Any]) -> None:
    chart.install(cluster.kubeconfig, {**values(), "crds": {"keep": True}}, wait=False)
    chart.uninstall(cluster.kubeconfig)
    assert len(definitions(cluster)) == len(CRDS)
    assert "NotFound" in refusal(cluster, "get", f"clusterrole/{AGENT_ROLE}")
    again = chart.install(cluster.kubeconfig, values(), wait=False)
    assert again["status"] == "deployed"


def test_the_program_runs_on_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values()))
    command = [sys.executable, "-m", "localcluster.chart", "template", "--values", str(path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    assert "kind: ValidatingAdmissionPolicy" in done.stdout
