"""Where everything lies, so that no other module joins a path by hand and ``stop`` knows all there is to remove.

Two places: a *cache* that outlives clusters (binaries, by version) and a *root* that holds one cluster only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from localcluster.errors import ClusterError

# sockaddr_un holds 107 characters and a NUL; containerd adds the longest tail to the root.
SOCKET_LIMIT = 107
LONGEST_SOCKET = "run/containerd/containerd.sock.ttrpc"


@dataclass(frozen=True)
class Layout:
    """The directories of one cluster (``root``) and of the binaries it runs (``cache``)."""

    root: Path
    cache: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Layout:
        """Read STOWPLAN_CLUSTER_DIR, XDG_STATE_HOME, XDG_CACHE_HOME; ClusterError for a root too long for sockets."""
        env = os.environ if environment is None else environment
        home = Path(env.get("HOME") or Path.home())
        cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "stowplan"
        state = Path(env["XDG_STATE_HOME"]) / "stowplan" if env.get("XDG_STATE_HOME") else cache
        root = Path(env.get("STOWPLAN_CLUSTER_DIR") or state / "cluster")
        longest = str(root / LONGEST_SOCKET)
        if not root.is_absolute() or len(longest) > SOCKET_LIMIT:
            raise ClusterError(
                f"The cluster directory {root} must be absolute and at most {SOCKET_LIMIT - len(LONGEST_SOCKET) - 1} "
                f"characters long, because unix sockets lie below it; set STOWPLAN_CLUSTER_DIR to another."
            )
        return cls(root=root, cache=cache)

    @cached_property
    def lock(self) -> Path:
        """Held while a cluster starts or stops; outside the root, which ``stop`` removes."""
        return self.root.with_name(self.root.name + ".lock")

    @cached_property
    def logs(self) -> Path:
        """One file a component; the only part of the root that outlives ``stop``."""
        return self.root / "logs"

    @cached_property
    def pki(self) -> Path:
        """Keys, certificates and the kubeconfig of each component."""
        return self.root / "pki"

    @cached_property
    def config(self) -> Path:
        """Rendered configuration files."""
        return self.root / "config"

    @cached_property
    def processes(self) -> Path:
        """One record a started process."""
        return self.root / "processes"

    @cached_property
    def run(self) -> Path:
        """Sockets and run-time state of containerd and runc."""
        return self.root / "run"

    @cached_property
    def data(self) -> Path:
        """What etcd, containerd, the kubelet and CNI store."""
        return self.root / "data"

    @cached_property
    def containerd_socket(self) -> Path:
        """The CRI endpoint."""
        return self.run / "containerd" / "containerd.sock"

    @cached_property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    def log(self, component: str) -> Path:
        """The log file of ``component``."""
        return self.logs / f"{component}.log"
