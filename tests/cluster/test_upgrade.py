"""K11 and C5: the last version's release and objects, taken over by this one; and what an uninstallation leaves.

The last version is there as what it wrote (tests/stored_version): its release is installed by Helm, its operator's
children are applied under its field manager, and their pods run before this version is installed over them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import stored_version
from cluster.played import ROOT, Studio, until
from cluster.releases import CRDS, clear, definitions, installed, namespaced, values
from localcluster import chart
from localcluster.client import Cluster
from stowplan_api.contract import Manager
from stowplan_api.crd import KINDS, definition

RUNNING = "everything"
"""The stored deployment whose pod runs on any node; the others wait for a card."""
DEFAULTS = {"agent": {"podTemplate": {}}}


@pytest.fixture
def last_release(tmp_path: Path) -> Path:
    """A chart that installs exactly what the last version's chart installed."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text((chart.CHART / "Chart.yaml").read_text())
    (tmp_path / "templates" / "all.yaml").write_text(yaml.safe_dump_all(stored_version.release()))
    return tmp_path


@pytest.fixture
def studio(local_cluster: Cluster, last_release: Path) -> Iterator[Studio]:
    """The last version with its deployments, one of which runs."""
    with (
        installed(local_cluster, wait=False, path=last_release),
        namespaced(local_cluster, stored_version.NAMESPACE) as studio,
    ):
        for dd, children in stored_version.deployments():
            studio.apply(dd)
            uid = studio.get("dd", dd["metadata"]["name"])["metadata"]["uid"]
            apply_as_operator(studio, json.loads(json.dumps(children).replace(stored_version.UID, uid)))
        studio.kubectl("wait", "--for=jsonpath={.status.updatedReplicas}=1", f"deploy/{RUNNING}", "--timeout=60s")
        until(lambda: ("Pod", pod(studio)) in state(studio)["uids"], "the pod exists")
        studio.wait(f"pod/{pod(studio)}", ".status.containerStatuses[0].started", "true")
        yield studio


def apply_as_operator(studio: Studio, manifests: list[dict[str, Any]]) -> None:
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    studio.kubectl("apply", "--server-side", f"--field-manager={Manager.WORKLOAD}", "--filename=-", input=given)


def pod(studio: Studio) -> str:
    """The pod of the deployment that runs."""
    names = studio.kubectl("get", "pods", f"--selector=stowplan.dev/deployment={RUNNING}", "--output=name").split()
    return names[0].removeprefix("pod/") if names else ""


def state(studio: Studio) -> dict[str, Any]:
    """What an upgrade must not change: which pods and children there are, and what pods are made from.

    How long a rollout may take is no part of it: a new version may reckon otherwise, and restarts nothing by it.
    """
    items = studio.cluster.json("-n", studio.namespace, "get", "pods,deployments,services,rolebindings,pdb")["items"]
    ours = [item for item in items if "stowplan.dev/deployment" in item["metadata"].get("labels", {})]
    uids = {(item["kind"], item["metadata"]["name"]): item["metadata"]["uid"] for item in ours}
    templates = {item["metadata"]["name"]: item["spec"]["template"] for item in ours if item["kind"] == "Deployment"}
    return {"uids": uids, "templates": templates}


def reconciled(studio: Studio, *, progressing: bool = True) -> None:
    """Wait until this version's operator has judged every stored deployment and reported on the running pod."""
    for dd, _ in stored_version.deployments():
        studio.wait(f"dd/{dd['metadata']['name']}", ".status.observedGeneration", "1", seconds=120)
        expected = f"--for=condition=Progressing={progressing}"
        studio.kubectl("wait", expected, f"dd/{dd['metadata']['name']}", "--timeout=60s")
    studio.kubectl("wait", "--for=create", f"rp/{pod(studio)}", "--timeout=60s")


def schemas(cluster: Cluster) -> list[Any]:
    return [cluster.json("get", name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for name in CRDS]


def current_schemas() -> list[Any]:
    return [definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS]


def test_an_upgrade_leaves_pods_alone_and_an_uninstallation_what_it_was_told_to(studio: Studio) -> None:
    """One story, for each step needs the one before."""
    cluster, before = studio.cluster, state(studio)
    assert len(before["uids"]) > 4 * len(stored_version.deployments())

    summary = chart.install(cluster.kubeconfig, values(**DEFAULTS), wait=True)
    assert (summary["revision"], summary["status"]) == (2, "deployed")
    reconciled(studio)
    assert state(studio) == before
    assert schemas(cluster) == current_schemas()

    chart.install(cluster.kubeconfig, values(**DEFAULTS, crds={"keep": True}), wait=True)
    chart.uninstall(cluster.kubeconfig)
    assert len(definitions(cluster)) == len(CRDS)
    assert state(studio) == before

    chart.install(cluster.kubeconfig, values(**DEFAULTS), wait=True)
    reconciled(studio)
    assert state(studio) == before

    # As the notes say: where the kind is gone first, the garbage collector may not know whose the children were.
    studio.kubectl("delete", "dd", "--all", "--timeout=60s")
    until(lambda: not any(state(studio).values()), "the garbage collector has removed every child", seconds=120)
    chart.uninstall(cluster.kubeconfig)
    assert definitions(cluster) == []


def test_c5_a_new_operator_on_older_definitions_names_what_they_drop_and_leaves_pods_alone(studio: Studio) -> None:
    """As where definitions are kept apart from the chart, and were forgotten."""
    cluster, before = studio.cluster, state(studio)
    dropped = [
        (kind.name, f"{part}.{field}")
        for kind, old, new in zip(KINDS, schemas(cluster), current_schemas(), strict=True)
        for part in ("spec", "status")
        for field in new["properties"][part]["properties"].keys() - old["properties"][part]["properties"].keys()
    ]
    of_specs = [field for kind, field in dropped if kind == KINDS[0].name and field.startswith("spec.")]
    chart.install(cluster.kubeconfig, values(**DEFAULTS, crds={"enabled": False}), wait=True)
    # A spec that may lack something is not carried out.
    reconciled(studio, progressing=not of_specs)
    ready = studio.condition(f"dd/{RUNNING}", "Ready")
    assert (ready["reason"] == "DefinitionOutdated") is bool(of_specs)
    assert all(field in ready["message"] for field in of_specs)
    said = cluster.kubectl("--namespace", chart.NAMESPACE, "logs", "deployment/stowplan-operator")
    for kind, field in dropped:
        assert f"{kind} is older than this operator" in said
        assert field in said
    assert state(studio) == before

    chart.install(cluster.kubeconfig, values(**DEFAULTS), wait=True)
    assert schemas(cluster) == current_schemas()
    assert state(studio) == before


def test_one_file_installs_and_removes_everything(local_cluster: Cluster) -> None:
    clear(local_cluster)
    path = str(ROOT / "charts" / "install.yaml")
    said = local_cluster.kubectl("apply", "--server-side", "--filename", path)
    assert said.count("serverside-applied") == path_objects(path)
    again = local_cluster.kubectl("apply", "--server-side", "--filename", path)
    assert again.count("serverside-applied") == path_objects(path)
    local_cluster.kubectl("wait", "--for=condition=Established", *CRDS, "--timeout=30s")
    local_cluster.kubectl("delete", "--filename", path, "--timeout=120s")
    assert definitions(local_cluster) == []


def path_objects(path: str) -> int:
    return len(list(yaml.safe_load_all(Path(path).read_text(encoding="utf-8"))))
