"""Start, stop and state of the cluster: the order of things, and nothing about how each is done."""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from localcluster import (
    build,
    certificates,
    cgroups,
    control_plane,
    images,
    kernel,
    network,
    node,
    packages,
    process,
    residue,
)
from localcluster.errors import ClusterError
from localcluster.layout import Layout
from localcluster.locking import exclusive
from localcluster.progress import say
from localcluster.versions import KUBERNETES, KWOK

# Consumers before what they consume; the kubelet first, or it would start again what is ended after it.
STOP_ORDER = ("kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
GRACE_S = 2.0


@dataclass(frozen=True)
class Status:
    """What runs: components by name, and whether the node takes pods."""

    components: dict[str, bool]
    node_ready: bool

    @property
    def running(self) -> bool:
        """True when every component runs and the node is Ready."""
        return bool(self.components) and all(self.components.values()) and self.node_ready


def obstacle() -> str | None:
    """Why this machine cannot run a local cluster, in one sentence; None when it can."""
    if platform.system() != "Linux":
        return f"the local cluster runs on Linux only, and this is {platform.system()}"
    if os.geteuid() != 0:
        return "the local cluster needs root for control groups, mounts and links"
    absent = packages.missing()
    if absent and packages.program("apt-get") is None:
        return f"the local cluster needs the Debian packages {' '.join(absent)}, and there is no apt-get"
    if not build.is_built(Layout.from_environment(), KUBERNETES) and build.go_program() is None:
        return "the local cluster is built with Go, and there is no `go` on PATH"
    return None


def prepare(layout: Layout, *, kwok: bool = False) -> Path:
    """Install and build what is missing; return where the programs are. ClusterError says what is in the way."""
    if (reason := obstacle()) is not None:
        raise ClusterError(f"This machine cannot run it: {reason}; set KUBECONFIG to use a cluster that you have.")
    packages.ensure(layout.cache / "packages.log")
    programs = build.ensure(layout, KUBERNETES)
    if kwok:
        build.ensure(layout, KWOK)
    return programs


def status(layout: Layout) -> Status:
    """The state now; asks the API server only when its process runs."""
    components = {name: record.alive for name, record in process.recorded(layout).items()}
    return Status(components, components.get("kube-apiserver", False) and node.is_ready(layout))


def start(layout: Layout, kubeconfig: Path | None = None) -> bool:
    """Bring the cluster up, write the administrator's kubeconfig to ``kubeconfig``, return whether it had to start.

    After an error nothing runs, and the logs say why. A cluster that is there in part is stopped and started anew.
    """
    programs = prepare(layout)
    with exclusive(layout.lock, "starts or stops the cluster"):
        started = not status(layout).running
        if started:
            _stop(layout)
            network.claim()
            try:
                _start(layout, programs)
            except BaseException:
                _stop(layout)
                raise
    if kubeconfig is not None:
        _copy_private(layout.kubeconfig, kubeconfig)
    return started


def stop(layout: Layout) -> None:
    """End the cluster and remove all it put on the machine, except its logs; nothing when there is none."""
    if os.geteuid() != 0 and process.recorded(layout):
        raise ClusterError("Stopping the local cluster needs root, as starting it did.")
    with exclusive(layout.lock, "starts or stops the cluster"):
        _stop(layout)


def _start(layout: Layout, programs: Path) -> None:
    began = time.monotonic()
    shutil.rmtree(layout.logs, ignore_errors=True)
    for directory in (layout.logs, layout.config, layout.data, layout.run, layout.processes):
        directory.mkdir(parents=True, exist_ok=True)
    kernel.apply(residue.kernel_record(layout))
    network.up()
    cgroups.create()
    certificates.create(layout.pki)
    control_plane.start(layout, programs)
    say(f"control plane is up after {time.monotonic() - began:.1f} s")
    node.start_containerd(layout)
    images.load_own(layout)
    node.start_kubelet(layout, programs)
    control_plane.wait(layout)
    node.wait(layout)
    _copy_private(layout.pki / "admin.kubeconfig", layout.kubeconfig)
    say(f"node is Ready after {time.monotonic() - began:.1f} s; kubeconfig: {layout.kubeconfig}")


def _stop(layout: Layout) -> None:
    # Links, tables and control groups have fixed names: without state here they are another directory's cluster.
    if not residue.has_state(layout):
        return
    records = process.recorded(layout)
    process.end([records[name] for name in STOP_ORDER[:1] if name in records], GRACE_S)
    process.end(residue.pod_processes(), 0)
    process.end([records[name] for name in STOP_ORDER[1:] if name in records], GRACE_S)
    # What is left are containerd, the shims, and anything that a killed start did not get to record.
    process.end(residue.strays(layout), GRACE_S)
    residue.unmount(layout.root)
    network.down()
    cgroups.remove()
    kernel.restore(residue.kernel_record(layout))
    residue.remove_files(layout)


def _copy_private(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    target.chmod(0o600)
    target.write_bytes(source.read_bytes())
