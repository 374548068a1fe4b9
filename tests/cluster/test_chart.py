"""The chart on a real API server: it installs, upgrades and goes, and gives no right beyond what is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest

import stored_version
from cluster.played import until
from cluster.releases import CRDS, OPERATOR, definitions, installed, values
from localcluster import chart
from localcluster.client import Cluster
from stowplan_api.contract import AGENT_ROLE


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """The chart, installed for this module and removed after it with its CRDs and its namespace."""
    with installed(cluster, wait=False) as summary:
        yield summary


def refusal(cluster: Cluster, *arguments: str, given: object = None) -> str:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cluster.kubectl(*arguments, input=None if given is None else json.dumps(given))
    return str(refused.value.stderr)


def allowed(cluster: Cluster, *arguments: str) -> bool:
    """Whether the operator's account may do something in any namespace."""
    return answer(cluster, ["auth", "can-i", *arguments, f"--as={OPERATOR}", "--all-namespaces"]) == "yes"


def answer(cluster: Cluster, question: list[str]) -> str:
    """What `kubectl auth can-i` says, which is an error when it is no."""
    try:
        return cluster.kubectl(*question).strip()
    except subprocess.CalledProcessError as error:
        assert error.stdout.strip() == "no", error.stderr
        return "no"


def test_the_operator_starts_and_stays_alive(local_cluster: Cluster, release: dict[str, Any]) -> None:
    assert release["status"] == "deployed"
    in_namespace = ("--namespace", chart.NAMESPACE)
    local_cluster.kubectl(*in_namespace, "rollout", "status", "deployment/stowplan-operator", "--timeout=120s")
    (pod,) = local_cluster.json(*in_namespace, "get", "pods")["items"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert "forbidden" not in local_cluster.kubectl(*in_namespace, "logs", "deployment/stowplan-operator").lower()


@pytest.mark.parametrize(("name", "namespace"), [("second", chart.NAMESPACE), (chart.RELEASE, "elsewhere")])
def test_a_second_release_is_refused_and_says_which_is_the_first(
    cluster: Cluster, release: dict[str, Any], name: str, namespace: str
) -> None:
    words = f"release {chart.RELEASE} in namespace {chart.NAMESPACE} serves this cluster already"
    more = values(crds={"enabled": False}, fullnameOverride="second")
    with pytest.raises(helm.HelmError, match=words):
        chart.install(cluster.kubeconfig, more, release=name, namespace=namespace, wait=False)


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


@pytest.mark.parametrize("name", stored_version.EXAMPLES)
def test_a_serving_pod_passes_the_restricted_profile(
    cluster: Cluster, release: dict[str, Any], namespace: str, name: str
) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    dd = next(dd for dd in stored_version.subjects() if dd["metadata"]["name"] == name)
    deployment = next(child for child in stored_version.rendered(dd) if child["kind"] == "Deployment")
    pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
    pod["metadata"]["name"] = name
    pod["spec"].pop("serviceAccountName")
    created = ["create", "--dry-run=server", "--filename=-"]
    assert "created" in cluster.kubectl("--namespace", namespace, *created, input=json.dumps(pod))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in refusal(cluster, "--namespace", namespace, *created, given=pod)


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


@pytest.mark.parametrize(
    ("role", "verb", "what", "may"),
    [
        ("view", "list", "diffusiondeployments.stowplan.dev", True),
        ("view", "get", "residencyplacements.stowplan.dev", True),
        ("view", "create", "diffusiondeployments.stowplan.dev", False),
        ("edit", "create", "diffusiondeployments.stowplan.dev", True),
        ("edit", "patch", "diffusiondeployments.stowplan.dev/scale", True),
        ("edit", "patch", "diffusiondeployments.stowplan.dev/status", False),
        ("edit", "patch", "residencyplacements.stowplan.dev/status", False),
    ],
)
def test_people_use_models_by_the_roles_that_they_have(
    cluster: Cluster, release: dict[str, Any], namespace: str, role: str, verb: str, what: str, may: bool
) -> None:
    cluster.kubectl("--namespace", namespace, "create", "rolebinding", "a", f"--clusterrole={role}", "--user=somebody")
    resource, _, subresource = what.partition("/")
    question = ["auth", "can-i", verb, resource, "--as=somebody", f"--namespace={namespace}"]
    question += [f"--subresource={subresource}"] if subresource else []
    until(lambda: answer(cluster, question) == ("yes" if may else "no"), f"the answer is {may}", seconds=30)


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
