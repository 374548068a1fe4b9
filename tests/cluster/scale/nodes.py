"""Nodes that exist on paper: API server, scheduler and controllers are real, and KWOK plays the kubelets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcluster import build
from localcluster.client import Cluster
from localcluster.versions import KWOK

STAGES = KWOK.directory / "stages.yaml"
SIMULATED = "kwok.x-k8s.io/node"
LEASE_SECONDS = 40
POD_CIDR = "10.64.0.1/16"
"""Of addresses that lead nowhere: room for 65,000 pods, beside the real node's."""


def pod_placement() -> dict[str, Any]:
    """What sends a pod to simulated nodes only, as a partial pod spec; the taint keeps every other pod away."""
    return {
        "nodeSelector": {SIMULATED: "fake"},
        "tolerations": [{"key": SIMULATED, "operator": "Exists"}],
    }


@contextmanager
def simulated(cluster: Cluster, count: int, log: Path) -> Iterator[list[str]]:
    """So many Ready nodes, and their kubelets, for as long as the block runs; their names."""
    assert cluster.local is not None, "KWOK is started beside the local cluster only"
    program = build.ensure(cluster.local, KWOK) / "kwok"
    names = [f"simulated-{number}" for number in range(count)]
    command = [
        str(program),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={STAGES}",
        f"--manage-nodes-with-annotation-selector={SIMULATED}=fake",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--cidr={POD_CIDR}",
    ]
    with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            cluster.apply(*map(_node, names))
            every = [f"node/{name}" for name in names]
            cluster.kubectl("wait", "--for=condition=Ready", *every, "--timeout=60s")
            yield names
            cluster.kubectl("delete", *every)
        finally:
            process.terminate()


def _node(name: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": {SIMULATED: "fake"}, "labels": {SIMULATED: "fake"}}
    taint = {"key": SIMULATED, "value": "fake", "effect": "NoSchedule"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}}
