"""A real API server accepts the CRDs and every example, and refuses every bad one with the sentence it promises."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kstatus
from localcluster.client import Cluster
from stowplan_api.crd import KINDS, definition
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.objects import DiffusionDeployment, ResidencyPlacement
from stowplan_api.quantity import parse_quantity

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
BAD = sorted((ROOT / "examples" / "bad").glob("*.yaml"))
NAMES = [f"crd/{kind.plural}.stowplan.dev" for kind in KINDS]


@pytest.fixture(scope="module", autouse=True)
def definitions(cluster: Cluster) -> Iterator[None]:
    """The CRDs of the tree; they are removed afterwards if they were not there before."""
    before = cluster.kubectl("get", *NAMES, "--ignore-not-found", "--output=name").split()
    cluster.apply(*(definition(kind) for kind in KINDS))
    cluster.kubectl("wait", "--for=condition=Established", *NAMES, "--timeout=30s")
    yield
    if not before:
        cluster.kubectl("delete", *NAMES)


def example(name: str = "tiny-wan") -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    return data


def refusal(cluster: Cluster, *arguments: str, given: object = None) -> str:
    """What kubectl says when the API server refuses."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cluster.kubectl(*arguments, input=None if given is None else json.dumps(given))
    return str(refused.value.stderr)


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_is_structural_and_its_names_are_free(cluster: Cluster, name: str) -> None:
    status = cluster.json("get", name)["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted_and_means_what_it_says(cluster: Cluster, path: Path) -> None:
    stored = cluster.json("create", "--dry-run=server", "--filename", str(path))
    written = DiffusionDeployment.from_json(yaml.safe_load(path.read_text(encoding="utf-8")))
    # The defaults that the API server filled in are the ones of the models.
    assert DiffusionDeployment.from_json(stored).spec == written.spec
    assert stored["spec"] == written.spec.to_json(exclude_none=True)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_with_its_sentence(cluster: Cluster, path: Path) -> None:
    promised = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# Refused: ")
    assert promised in refusal(cluster, "create", "--dry-run=server", "--filename", str(path))


def test_there_is_a_bad_example_for_every_rule_of_a_spec() -> None:
    promised = {path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# Refused: ") for path in BAD}
    assert {rule["message"] for rule in _rules(definition(KINDS[0]))} <= promised


def test_columns_tell_the_story(cluster: Cluster, namespace: str) -> None:
    cluster.apply(example(), namespace=namespace)
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "RolledOut",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T12:00:00Z",
    }
    status = {"validatedReplicas": 1, "device": "Emulated", "peak": "30 MiB", "seconds": "0.12s", "rollbacks": 0}
    patch = json.dumps({"status": {**status, "conditions": [condition]}})
    in_namespace = ("--namespace", namespace)
    cluster.kubectl(*in_namespace, "patch", "dd/tiny-wan", "--subresource=status", "--type=merge", "--patch", patch)
    head, line = cluster.kubectl(*in_namespace, "get", "dd").splitlines()
    assert head.split() == ["NAME", "MODEL", "READY", "VALIDATED", "REPLICAS", "REASON", "AGE"]
    assert line.split()[:6] == ["tiny-wan", "file:///models/tiny-wan", "True", "1", "1", "RolledOut"]
    wide = cluster.kubectl(*in_namespace, "get", "stowplan", "--output=wide")
    for word in ("DEVICE", "PEAK", "SECONDS", "ROLLBACKS", "30 MiB", "0.12s"):
        assert word in wide
    assert "met" in cluster.kubectl(*in_namespace, "wait", "--for=condition=Ready", "dd/tiny-wan", "--timeout=5s")


def test_what_nobody_has_seen_is_not_finished(cluster: Cluster, namespace: str) -> None:
    """kstatus takes an object without a status for finished; with an operator that is down it would for ever be."""
    cluster.apply(example(), namespace=namespace)
    stored = cluster.json("--namespace", namespace, "get", "dd/tiny-wan")
    assert stored["status"] == {"observedGeneration": -1}
    assert kstatus.judge(stored) == "InProgress"


def test_scale_is_a_subresource(cluster: Cluster, namespace: str) -> None:
    cluster.apply(example(), namespace=namespace)
    cluster.kubectl("--namespace", namespace, "scale", "dd/tiny-wan", "--replicas=3")
    stored = cluster.json("--namespace", namespace, "get", "dd/tiny-wan")
    assert stored["spec"]["replicas"] == 3
    assert stored["metadata"]["generation"] == 2


def test_the_order_of_shapes_follows_the_last_apply(cluster: Cluster, namespace: str) -> None:
    data = example("flux")
    cluster.apply(data, namespace=namespace)
    data["spec"]["workload"]["shapes"].reverse()
    cluster.apply(data, namespace=namespace)
    stored = cluster.json("--namespace", namespace, "get", "dd/flux")
    assert [shape["name"] for shape in stored["spec"]["workload"]["shapes"]] == ["wide", "square"]


def test_a_partial_pod_template_is_kept_as_it_is(cluster: Cluster) -> None:
    data = example()
    template = {"spec": {"containers": [{"name": "server", "anything": {"of": [1, "a user"]}}]}}
    data["spec"]["podTemplate"] = template
    stored = cluster.json("create", "--dry-run=server", "--filename=-", input=json.dumps(data))
    assert stored["spec"]["podTemplate"] == template


def test_a_pinned_placement_survives(cluster: Cluster) -> None:
    data = example()
    group = {"name": "blocks", "residentLayers": 3, "pinnedLayers": [5]}
    transformer = {"name": "transformer", "mode": "Layerwise", "looseLifetime": "Forward", "groups": [group]}
    offloaded = {"name": "text_encoder", "mode": "Offload", "prefetch": True, "pinnedBytes": [1024]}
    components = [transformer, offloaded, {"name": "vae", "mode": "Resident"}]
    data["spec"]["residency"] = {"mode": "Pinned", "placement": {"components": components}}
    stored = cluster.json("create", "--dry-run=server", "--filename=-", input=json.dumps(data))
    assert DiffusionDeployment.from_json(stored).spec == DiffusionDeploymentSpec.model_validate(data["spec"])


def test_a_placement_is_written_once_and_its_status_often(cluster: Cluster, namespace: str) -> None:
    spec = {
        "deployment": "tiny-wan",
        "pod": {"name": "a", "uid": "1"},
        "generation": 1,
        "limits": {"memoryBytes": (1 << 63) - 1},
    }
    metadata = {"name": "a", "namespace": namespace}
    cluster.apply(
        {"apiVersion": "stowplan.dev/v1alpha1", "kind": "ResidencyPlacement", "metadata": metadata, "spec": spec},
        namespace=namespace,
    )
    patch = json.dumps({"spec": {"generation": 2}})
    said = refusal(cluster, "--namespace", namespace, "patch", "rp/a", "--type=merge", "--patch", patch)
    assert "spec is immutable: the operator writes it once" in said
    for phase in ("Load", "Probe"):
        patch = json.dumps({"status": {"phase": phase}})
        cluster.kubectl(
            *("--namespace", namespace, "patch", "rp/a", "--subresource=status", "--type=merge", "--patch", patch)
        )
    stored = ResidencyPlacement.from_json(cluster.json("--namespace", namespace, "get", "rp/a"))
    assert (stored.status.phase, stored.spec.limits.memory_bytes) == ("Probe", (1 << 63) - 1)


def test_explain_explains(cluster: Cluster) -> None:
    said = " ".join(cluster.kubectl("explain", "dd.spec.resources").split())
    assert "Host memory a pod, for pins, host copies and shared memory as well." in said
    assert "Device memory kept free" in cluster.kubectl("explain", "dd.spec.residency.deviceReserve")


def test_quantities_are_read_as_the_api_server_reads_them(cluster: Cluster) -> None:
    texts = ["0.1Gi", "1.5G", "1500m", "1e3", "2e-3", "1n", "1.Ki", ".5Mi", "+7", "100k", "12E6", "7Ei", "0.12345Ti"]
    quota = {"apiVersion": "v1", "kind": "ResourceQuota"}
    quotas = [{**quota, "metadata": {"name": f"q{n}"}, "spec": {"hard": {"memory": q}}} for n, q in enumerate(texts)]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": quotas})
    lines = "--output=jsonpath={.spec.hard.memory}{'\\n'}"
    answered = cluster.kubectl("create", "--dry-run=server", "--filename=-", lines, input=given).split()
    normal = dict(zip(texts, answered, strict=True))
    assert {text: parse_quantity(text) for text in texts} == {text: parse_quantity(normal[text]) for text in texts}
    assert normal["0.1Gi"] == "107374182400m"


def _rules(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", [])
        for child in node.values():
            yield from _rules(child)
    elif isinstance(node, list):
        for child in node:
            yield from _rules(child)
