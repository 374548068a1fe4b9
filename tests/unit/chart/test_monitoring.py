"""The chart's toggles: off by default, and what each brings is what the Prometheus operator and Kubernetes take."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from localcluster.chart import template
from stowplan_api.contract import LABEL_DEPLOYMENT

KUBERNETES = "1.34"
ON: dict[str, dict[str, Any]] = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "1m"},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "runbooks": "https://runbooks.example/page",
    },
    "networkPolicy": {"enabled": True, "serving": {"namespaces": ["studio"]}},
}
OF_PROMETHEUS_OPERATOR = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


def added(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What values add to the default objects."""
    before = template()
    return [item for item in template(values) if item not in before]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def test_everything_is_off_by_default() -> None:
    optional = OF_PROMETHEUS_OPERATOR | {"NetworkPolicy", "Service"}
    assert not optional & {item["kind"] for item in template()}


@pytest.mark.parametrize(
    ("toggle", "kinds"),
    [
        ("serviceMonitor", ["Service", "ServiceMonitor"]),
        ("podMonitor", ["PodMonitor"]),
        ("prometheusRule", ["PrometheusRule"]),
        ("networkPolicy", ["NetworkPolicy", "NetworkPolicy"]),
    ],
)
def test_a_toggle_brings_its_objects_and_changes_no_other(toggle: str, kinds: list[str]) -> None:
    new = added({toggle: ON[toggle]})
    assert sorted(item["kind"] for item in new) == kinds
    for item in new:
        if item["kind"] not in OF_PROMETHEUS_OPERATOR:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
        elif toggle != "networkPolicy":
            assert item["metadata"]["labels"]["release"] == "prometheus"


def test_the_service_monitor_finds_its_service_and_the_operators_port() -> None:
    objects = template({"serviceMonitor": ON["serviceMonitor"]})
    (service,), (monitor,) = of_kind(objects, "Service"), of_kind(objects, "ServiceMonitor")
    assert monitor["spec"].keys() == {"selector", "endpoints"}
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    (deployment,) = of_kind(objects, "Deployment")
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (port,), (endpoint,) = service["spec"]["ports"], monitor["spec"]["endpoints"]
    assert endpoint == {"port": port["name"], "path": "/metrics", "interval": "30s"}
    ports = {entry["name"]: entry["containerPort"] for entry in pod["spec"]["containers"][0]["ports"]}
    assert ports[port["targetPort"]] == port["port"]


@pytest.mark.parametrize(
    ("namespaces", "selected"), [([], {"any": True}), (["red", "blue"], {"matchNames": ["red", "blue"]})]
)
def test_the_pod_monitor_reads_the_pods_that_are_served(namespaces: list[str], selected: dict[str, Any]) -> None:
    (monitor,) = of_kind(template({"podMonitor": ON["podMonitor"], "watchNamespaces": namespaces}), "PodMonitor")
    spec = monitor["spec"]
    assert spec.keys() == {"namespaceSelector", "selector", "podMetricsEndpoints"}
    assert spec["namespaceSelector"] == selected
    assert spec["selector"] == {"matchExpressions": [{"key": LABEL_DEPLOYMENT, "operator": "Exists"}]}
    (endpoint,) = spec["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("http", "/metrics", "1m")
    (relabeling,) = endpoint["relabelings"]
    label = "__meta_kubernetes_pod_label_" + LABEL_DEPLOYMENT.translate(str.maketrans("./-", "___"))
    assert relabeling == {"sourceLabels": [label], "targetLabel": "diffusion_deployment"}


def test_network_policies_name_the_operator_and_every_namespace_that_is_served() -> None:
    values = {"networkPolicy": ON["networkPolicy"], "watchNamespaces": ["red", "studio"]}
    policies = {item["metadata"]["namespace"]: item["spec"] for item in of_kind(template(values), "NetworkPolicy")}
    assert policies.keys() == {"stowplan-system", "red", "studio"}
    operator, serving = policies["stowplan-system"], policies["red"]
    assert {port["port"] for rule in operator["ingress"] for port in rule["ports"]} == {"health", "metrics"}
    assert {port["port"] for rule in operator["egress"] for port in rule["ports"]} == {443, 6443, "http"}
    assert [rule["to"][0].get("podSelector") for rule in operator["egress"] if "to" in rule] == [serving["podSelector"]]
    assert [port["port"] for rule in serving["ingress"] for port in rule["ports"]] == ["http"]
    blocks = [peer["ipBlock"] for rule in serving["egress"] for peer in rule.get("to", [])]
    assert ["169.254.169.254/32"] in [block.get("except") for block in blocks]
    assert all(rule["ports"] for rule in (*operator["egress"], *serving["egress"]))


@pytest.mark.parametrize(("hub", "ports"), [([8443, 443], {443, 6443, 8443}), ([], {443, 6443}), (None, {443, 6443})])
def test_serving_pods_reach_a_hub_at_its_ports(hub: list[int] | None, ports: set[int]) -> None:
    serving = {"namespaces": ["studio"]} | ({} if hub is None else {"hubPorts": hub})
    (policy,) = (
        item["spec"]
        for item in of_kind(template({"networkPolicy": {"enabled": True, "serving": serving}}), "NetworkPolicy")
        if item["metadata"]["namespace"] == "studio"
    )
    (beyond,) = (rule for rule in policy["egress"] if "to" in rule)
    assert {port["port"] for port in beyond["ports"]} == ports


def test_a_network_policy_may_name_who_asks() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}]
    policy = {"enabled": True, "metricsFrom": peers, "serving": {"namespaces": ["studio"], "from": peers}}
    operator, serving = (item["spec"] for item in of_kind(template({"networkPolicy": policy}), "NetworkPolicy"))
    assert [rule.get("from") for rule in operator["ingress"]] == [None, peers]
    (rule,) = serving["ingress"]
    asks, *others = rule["from"]
    assert others == peers
    assert asks["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "stowplan-system"}}
    assert asks["podSelector"] == operator["podSelector"], "it fetches stored starts, whoever else may ask"
