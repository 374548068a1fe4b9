"""The chart without a cluster: what it renders is valid, unprivileged, and follows its values."""

from __future__ import annotations

from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

from localcluster.chart import CHART, main, merged, notes, template
from stowplan_api.contract import OperatorEnv

KUBERNETES = "1.34"
OF_PROMETHEUS_OPERATOR = "monitoring.coreos.com/v1"
"""Kinds of another project; test_monitoring.py and promtool read them."""
EVERYTHING: dict[str, Any] = {
    "nameOverride": "planner",
    "fullnameOverride": "stow",
    "crds": {"enabled": True, "keep": False},
    "watchNamespaces": ["red", "blue"],
    "image": {"repository": "example/operator", "tag": "1", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "command": ["python", "-m", "stowplan_operator"],
    "logLevel": "debug",
    "resyncSeconds": 60,
    "agent": {
        "image": {"repository": "example/agent", "tag": "2", "pullPolicy": "Never"},
        "podTemplate": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    },
    "admissionPolicy": {"enabled": True},
    "aggregateRoles": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "runbooks": "https://runbooks.example"},
    "grafanaDashboard": {"enabled": True, "labels": {"grafana_dashboard": "1"}, "annotations": {"folder": "GPU"}},
    "networkPolicy": {
        "enabled": True,
        "apiServerPorts": [6443],
        "metricsFrom": [{"podSelector": {}}],
        "serving": {
            "namespaces": ["green"],
            "from": [{"namespaceSelector": {}}],
            "hubPorts": [8443],
            "except": ["10.0.0.0/8"],
        },
    },
    "serviceAccount": {"name": "operator", "annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "video"},
    "resources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "dnsPolicy": "Default",
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
}


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def operator(values: dict[str, Any] | None = None) -> dict[str, Any]:
    (deployment,) = of_kind(template(values), "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def environment(values: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in operator(values)["containers"][0]["env"]}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_object_is_valid(values: dict[str, Any]) -> None:
    objects = template(values)
    for item in objects:
        if item["apiVersion"] != OF_PROMETHEUS_OPERATOR:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
    identities = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
    assert len(set(identities)) == len(identities)


def test_every_value_is_tried_above() -> None:
    def keys(values: dict[str, Any]) -> set[str]:
        maps = {key: value for key, value in values.items() if isinstance(value, dict)}
        return set(values) | {f"{key}.{name}" for key, value in maps.items() for name in keys(value)}

    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    defaults["resources"] = {}  # Kubernetes' own words from here on.
    assert keys(defaults) <= keys(EVERYTHING)


def test_helm_finds_nothing_to_complain_of() -> None:
    found = helm.lint(CHART)
    assert found["errors"] == []
    assert [message["error"] for message in found["messages"]] == ["icon is recommended"]


def test_the_operator_runs_restricted() -> None:
    pod = operator()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod)


def test_settings_reach_the_operator() -> None:
    found = environment(EVERYTHING)
    assert found[OperatorEnv.AGENT_IMAGE] == "example/agent:2"
    assert found[OperatorEnv.AGENT_IMAGE_PULL_POLICY] == "Never"
    assert found[OperatorEnv.WATCH_NAMESPACES] == "red,blue"
    assert found[OperatorEnv.RESYNC_SECONDS] == "60"
    assert found[OperatorEnv.LOG_LEVEL] == "debug"
    assert found["TZ"] == "UTC"


def test_only_variables_of_the_contract_are_set() -> None:
    known = {str(name) for name in OperatorEnv}
    assert {name for name in environment(EVERYTHING) if name.startswith("STOWPLAN_")} <= known


def test_the_administrators_pod_template_is_a_file_and_a_change_restarts_the_operator() -> None:
    (config,) = (
        item for item in of_kind(template(EVERYTHING), "ConfigMap") if "dashboard" not in item["metadata"]["name"]
    )
    content = yaml.safe_load(config["data"]["agent-pod-template.yaml"])
    assert content == EVERYTHING["agent"]["podTemplate"]
    path = environment(EVERYTHING)[OperatorEnv.AGENT_POD_TEMPLATE]
    pod = operator(EVERYTHING)
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert path == f"{mounts['agent-pod-template']}/agent-pod-template.yaml"

    def checksum(values: dict[str, Any]) -> str:
        (deployment,) = of_kind(template(values), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/agent-pod-template"])

    other = merged(EVERYTHING, {"agent": {"podTemplate": {"spec": {"priorityClassName": "low"}}}})
    assert checksum(EVERYTHING) != checksum(other)


@pytest.mark.parametrize(("keep", "annotations"), [(True, {"helm.sh/resource-policy": "keep"}), (False, None)])
def test_definitions_stay_behind_when_asked(keep: bool, annotations: dict[str, str] | None) -> None:
    definitions = of_kind(template({"crds": {"keep": keep}}), "CustomResourceDefinition")
    assert [item["metadata"].get("annotations") for item in definitions] == [annotations] * 2


def test_definitions_may_come_from_elsewhere() -> None:
    assert of_kind(template({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


def test_the_notes_say_the_next_command_and_what_is_dangerous() -> None:
    assert "rollout status deployment/stowplan-operator" in notes()
    assert "kubectl apply -f examples/" in notes()
    assert "kubectl delete dd --all --all-namespaces" in notes({"crds": {"keep": False}})
    assert "may open the gate of another pod" in notes({"admissionPolicy": {"enabled": False}})


def test_the_program_prints_objects_and_one_sentence_for_a_wrong_file(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["template"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == template()
    (tmp_path / "values.yaml").write_text("imagee: {}\n")
    assert main(["template", "--values", str(tmp_path / "values.yaml")]) == 1
    assert "imagee" in capsys.readouterr().err
