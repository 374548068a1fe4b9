"""Both parts on a cluster: the chart installed as a user would, and a tiny checkpoint that all serving pods mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from cluster.stories import NAME, ROOT
from localcluster import chart
from localcluster.client import Cluster
from localcluster.host_python import HostPython
from stowplan_api.crd import KINDS

PROGRAM = ROOT / "examples" / "tiny_models.py"


@contextmanager
def installed(cluster: Cluster, folders: pytest.TempPathFactory, more: Mapping[str, Any]) -> Iterator[Cluster]:
    """The chart with ``more`` values, the checkpoint at /models; removed afterwards with its CRDs."""
    models = folders.mktemp("models")
    models.chmod(0o755)
    python = HostPython.here().python
    subprocess.run([python, PROGRAM, NAME, models / NAME], check=True, capture_output=True)
    for folder in (models, *models.parents):
        if folder.is_relative_to(folders.getbasetemp().parent):
            folder.chmod(0o755)  # pytest's folders are for their owner only, and pods run as somebody else
    values = HostPython.here().chart_values() | {"crds": {"keep": False}} | dict(more)
    agent: Any = values["agent"]
    spec = agent["podTemplate"]["spec"]
    spec["volumes"].append({"name": "models", "hostPath": {"path": str(models), "type": "Directory"}})
    spec["containers"][0]["volumeMounts"].append({"name": "models", "mountPath": "/models", "readOnly": True})
    definitions = [f"crd/{kind.plural}.stowplan.dev" for kind in KINDS]
    cluster.kubectl("delete", *definitions, "--ignore-not-found")
    chart.install(cluster.kubeconfig, values)
    yield cluster
    chart.uninstall(cluster.kubeconfig)
    cluster.kubectl("delete", "namespace", chart.NAMESPACE, "--wait=false")
