"""The chart installed for a while: what it needs of a cluster before, and what it must not leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.played import Studio
from localcluster import chart
from localcluster.client import Cluster
from localcluster.host_python import HostPython
from stowplan_api.crd import KINDS

CRDS = [f"crd/{kind.plural}.stowplan.dev" for kind in KINDS]
OPERATOR = f"system:serviceaccount:{chart.NAMESPACE}:stowplan-operator"


def values(**more: Any) -> dict[str, Any]:
    """The operator and every serving pod on this machine's Python; the CRDs go with the release. ``more`` replaces."""
    return {**HostPython.here().chart_values(), "crds": {"keep": False}, **more}


def definitions(cluster: Cluster) -> list[str]:
    """Which of the CRDs are there."""
    return cluster.kubectl("get", *CRDS, "--ignore-not-found", "--output=name").split()


def clear(cluster: Cluster) -> None:
    """Remove CRDs that earlier tests left on a local cluster; objects of somebody's are a failure.

    Those of a namespace that is on its way out are nobody's: tests delete theirs without waiting.
    """
    namespaces = cluster.json("get", "namespaces")["items"]
    leaving = [f"ns/{one['metadata']['name']}" for one in namespaces if one["status"]["phase"] == "Terminating"]
    if leaving:
        cluster.kubectl("wait", "--for=delete", *leaving, "--timeout=120s")
    if definitions(cluster):
        objects = cluster.kubectl("get", "dd,rp", "--all-namespaces", "--output=name")
        if cluster.local is None or objects:
            pytest.fail("the cluster has Stowplan's CRDs already; remove that installation first", pytrace=False)
        cluster.kubectl("delete", *CRDS)


@contextmanager
def installed(cluster: Cluster, *, wait: bool, path: Path = chart.CHART, **more: Any) -> Iterator[dict[str, Any]]:
    """The chart at ``path`` with these values, removed at the end with its CRDs and its namespace; Helm's summary."""
    clear(cluster)
    try:
        yield chart.install(cluster.kubeconfig, values(**more), wait=wait, path=path)
    finally:
        remove(cluster)
    assert definitions(cluster) == []


@contextmanager
def namespaced(cluster: Cluster, name: str) -> Iterator[Studio]:
    """A namespace for a whole module, gone with everything in it before what follows."""
    cluster.kubectl("create", "namespace", name)
    try:
        yield Studio(cluster, name)
    finally:
        cluster.kubectl("delete", "namespace", name, "--timeout=120s")


def remove(cluster: Cluster) -> None:
    """Uninstall, and wait until the namespace is gone, so that the next installation can make it anew."""
    chart.uninstall(cluster.kubeconfig)
    cluster.kubectl("delete", "namespace", chart.NAMESPACE, "--ignore-not-found", "--timeout=120s")
