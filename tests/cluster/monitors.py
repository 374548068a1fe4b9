"""What the Prometheus operator makes of the chart's monitors, and what a Prometheus discovers by it.

Neither is here: the operator's kinds are served by definitions that take anything, so that the chart can be installed
with all of it, and Debian's Prometheus is built without discovery in Kubernetes. So ServiceMonitors and PodMonitors
become relabelings here, by the operator's rules as far as the chart uses them, and targets come from a file that has
what Prometheus would know of each: its ``__meta_kubernetes_`` labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcluster.client import Cluster

GROUP = "monitoring.coreos.com"
KINDS = {"ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
META = "__meta_kubernetes_"
Value = Mapping[str, Any]


@contextmanager
def served(cluster: Cluster) -> Iterator[None]:
    """The kinds of the Prometheus operator, until the block ends."""
    cluster.apply(*(_definition(kind, plural) for kind, plural in KINDS.items()))
    names = [f"crd/{plural}.{GROUP}" for plural in KINDS.values()]
    cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    yield
    cluster.kubectl("delete", *names)


def scrape_configs(objects: Iterable[Value], folder: Path) -> list[dict[str, Any]]:
    """A scrape configuration for each endpoint of each monitor, over the targets that `discover` writes to a folder."""
    makers = {"ServiceMonitor": _of_services, "PodMonitor": _of_pods}
    return [
        {
            "job_name": f"{monitor['kind']}/{_name(monitor)}",
            "file_sd_configs": [{"files": [str(folder / f"{monitor['kind']}.json")]}],
            "metrics_path": endpoint["path"],
            "scrape_interval": endpoint["interval"],
            "relabel_configs": [*_in_namespaces(monitor), *relabelings, *_common(endpoint)],
        }
        for monitor in objects
        if monitor["kind"] in makers
        for endpoint, relabelings in makers[monitor["kind"]](monitor)
    ]


def discover(cluster: Cluster, folder: Path) -> None:
    """Write what there is now: every port of every pod and of every Service, wanted or not."""
    pods = cluster.json("get", "pods", "--all-namespaces")["items"]
    services = {_where(one): one for one in cluster.json("get", "services", "--all-namespaces")["items"]}
    endpoints = cluster.json("get", "endpoints", "--all-namespaces")["items"]
    found = {
        "PodMonitor": [target for pod in pods if "podIP" in pod["status"] for target in _ports_of(pod)],
        "ServiceMonitor": [
            target for one in endpoints if _where(one) in services for target in _behind(services[_where(one)], one)
        ],
    }
    for kind, targets in found.items():
        whole = folder / f"{kind}.new"
        whole.write_text(json.dumps(targets))
        whole.rename(folder / f"{kind}.json")  # It is read as soon as it changes.


def rules(objects: Iterable[Value]) -> dict[str, Any]:
    """The groups of the only PrometheusRule."""
    (found,) = (one["spec"] for one in objects if one["kind"] == "PrometheusRule")
    return dict(found)


def _of_pods(monitor: Value) -> Iterator[tuple[Value, list[dict[str, Any]]]]:
    job = {"target_label": "job", "replacement": f"{monitor['metadata']['namespace']}/{_name(monitor)}"}
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        ended = {"source_labels": [f"{META}pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}
        chosen = _selected("pod", monitor["spec"]["selector"])
        yield endpoint, [ended, *chosen, _kept("pod_container_port_name", endpoint["port"]), job]


def _of_services(monitor: Value) -> Iterator[tuple[Value, list[dict[str, Any]]]]:
    for endpoint in monitor["spec"]["endpoints"]:
        chosen = _selected("service", monitor["spec"]["selector"])
        yield endpoint, [*chosen, _kept("endpoint_port_name", endpoint["port"]), _copied("service_name", "job")]


def _in_namespaces(monitor: Value) -> Iterator[dict[str, Any]]:
    chosen = monitor["spec"].get("namespaceSelector", {})
    if not chosen.get("any"):
        yield _kept("namespace", *chosen.get("matchNames", [monitor["metadata"]["namespace"]]))


def _common(endpoint: Value) -> Iterator[dict[str, Any]]:
    for label, to in (("namespace", "namespace"), ("pod_name", "pod"), ("pod_container_name", "container")):
        yield _copied(label, to)
    for one in endpoint.get("relabelings", ()):
        yield {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value for key, value in one.items()}


def _selected(role: str, selector: Value) -> Iterator[dict[str, Any]]:
    for key, value in selector.get("matchLabels", {}).items():
        yield _kept(f"{role}_label_{_label(key)}", value)
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "Exists", "the chart uses no other"
        yield _kept(f"{role}_labelpresent_{_label(expression['key'])}", "true")


def _kept(label: str, *values: str) -> dict[str, Any]:
    return {"source_labels": [META + label], "regex": "|".join(map(re.escape, values)), "action": "keep"}


def _copied(label: str, to: str) -> dict[str, Any]:
    return {"source_labels": [META + label], "target_label": to}


def _ports_of(pod: Value) -> Iterator[dict[str, Any]]:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            known = {"pod_container_name": container["name"], "pod_container_port_name": port.get("name", "")}
            known |= {"pod_name": pod["metadata"]["name"], "pod_phase": pod["status"]["phase"]}
            yield _target(pod, "pod", f"{pod['status']['podIP']}:{port['containerPort']}", known)


def _behind(service: Value, endpoints: Value) -> Iterator[dict[str, Any]]:
    for subset in endpoints.get("subsets", ()):
        for address in (*subset.get("addresses", ()), *subset.get("notReadyAddresses", ())):
            for port in subset.get("ports", ()):
                known = {"endpoint_port_name": port.get("name", ""), "service_name": _name(service)}
                known |= {"pod_name": address.get("targetRef", {}).get("name", "")}
                yield _target(service, "service", f"{address['ip']}:{port['port']}", known)


def _target(of: Value, role: str, address: str, known: dict[str, str]) -> dict[str, Any]:
    labels = of["metadata"].get("labels", {})
    known |= {"namespace": of["metadata"]["namespace"]}
    known |= {f"{role}_label_{_label(key)}": value for key, value in labels.items()}
    known |= {f"{role}_labelpresent_{_label(key)}": "true" for key in labels}
    return {"targets": [address], "labels": {META + key: value for key, value in known.items()}}


def _label(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def _where(of: Value) -> tuple[str, str]:
    return of["metadata"]["namespace"], of["metadata"]["name"]


def _name(of: Value) -> str:
    return str(of["metadata"]["name"])


def _definition(kind: str, plural: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }
