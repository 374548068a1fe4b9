"""What a real pod with a memory limit says of its host memory: the kubelet's cgroups, the kernel's own accounts."""

from __future__ import annotations

import json

from cluster.test_localcluster import finished, pod
from localcluster.client import Cluster

MIB = 1 << 20
SCRIPT = """
import json, os, time
from pathlib import Path
from stowplan_agent.inventory import read_host_limits

MIB = 1 << 20
said = []
def read(step):
    limits = read_host_limits()
    said.append({"step": step, "headroom": limits.headroom, "limit": limits.tightest.limit,
                 "name": limits.decided_by, "budget": limits.pin_budget(16 * MIB)})

read("start")
with open("/scratch/checkpoint", "wb") as file:
    for _ in range(160):
        file.write(os.urandom(MIB))
    file.flush()
    os.fsync(file.fileno())
read("page cache")
anonymous = bytearray(b"x") * (64 * MIB)
read("anonymous")
Path("/dev/shm/shared").write_bytes(bytes(32 * MIB))
read("shared")
del anonymous
os.unlink("/dev/shm/shared")
read("given back")
print(json.dumps(said))
"""


def test_h5_h6_a_real_pod_knows_its_own_limit(local_cluster: Cluster, namespace: str) -> None:
    """Issue 6: the right budget under a limit of 256 MiB, with a page cache full of what the pod wrote."""
    manifest = pod("limited", SCRIPT, memory="256Mi")
    manifest["spec"].setdefault("volumes", []).append({"name": "scratch", "emptyDir": {}})
    container = manifest["spec"]["containers"][0]
    container.setdefault("volumeMounts", []).append({"name": "scratch", "mountPath": "/scratch"})
    manifest["spec"]["securityContext"] = manifest["spec"].get("securityContext", {}) | {"fsGroup": 65532}
    local_cluster.apply(manifest, namespace=namespace)
    steps = {one["step"]: one for one in json.loads(finished(local_cluster, namespace, "limited"))}
    for one in steps.values():
        assert one["limit"] == 256 * MIB and "cgroup" in one["name"], one
        assert one["budget"] == one["headroom"] - 16 * MIB
    start = steps["start"]["headroom"]
    assert 150 * MIB < start < 256 * MIB
    slack = 12 * MIB  # the kernel charges a processor's share at a time, and Python's own memory comes and goes
    for step, taken in (("page cache", 0), ("anonymous", 64), ("shared", 96), ("given back", 0)):
        assert abs(start - taken * MIB - steps[step]["headroom"]) < slack, (step, steps)
