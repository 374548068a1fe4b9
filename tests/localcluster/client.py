"""What tests and programs hold of a cluster, the local one or the user's own: kubectl, objects, and images."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localcluster import build, images, packages
from localcluster.errors import ClusterError
from localcluster.layout import Layout
from localcluster.versions import KUBERNETES


class Cluster:
    """A reachable Kubernetes. ``local`` is None when it is the user's own."""

    def __init__(self, kubeconfig: Path, program: str, local: Layout | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.program = program
        self.local = local
        # kubectl caches what the server offers by its address, and every local cluster has the same one.
        self._cache = tempfile.TemporaryDirectory(prefix="stowplan-kubectl-")

    @classmethod
    def of_layout(cls, layout: Layout) -> Cluster:
        """The local cluster, which must have been started."""
        if not layout.kubeconfig.exists():
            raise ClusterError("No local cluster runs; start one with `python -m localcluster start`.")
        return cls(layout.kubeconfig, str(build.directory(layout, KUBERNETES) / "kubectl"), layout)

    @classmethod
    def of_user(cls, environment: Mapping[str, str], layout: Layout) -> Cluster | None:
        """The cluster that KUBECONFIG names; None when it is not set or names the local cluster of ``layout``."""
        named = environment.get("KUBECONFIG")
        if not named or _same_file(Path(named), layout.kubeconfig):
            return None
        program = packages.program("kubectl")
        if program is None:
            raise ClusterError(f"KUBECONFIG is {named}, but there is no kubectl on PATH to use it with.")
        return cls(Path(named), program)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - subprocess's own word for it
        """Standard output of kubectl; CalledProcessError carries its standard error when it fails."""
        command = [self.program, f"--cache-dir={self._cache.name}", *arguments]
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        if self.local is not None:
            environment["NO_PROXY"] = "*"
        done = subprocess.run(command, input=input, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            error = subprocess.CalledProcessError(done.returncode, ["kubectl", *arguments], done.stdout, done.stderr)
            error.add_note(done.stderr.strip())
            raise error
        return done.stdout

    def json(self, *arguments: str, input: str | None = None) -> Any:  # noqa: A002
        """What kubectl prints with ``--output=json``, parsed."""
        return json.loads(self.kubectl(*arguments, "--output=json", input=input))

    def apply(self, *objects: Mapping[str, Any], namespace: str = "default") -> None:
        """Apply the objects, server-side, as one kubectl call."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("--namespace", namespace, "apply", "--server-side", "--filename=-", input=json.dumps(items))

    def load_image(self, archive: Path) -> list[str]:
        """Import an image archive into the local node; ClusterError on a user's cluster, whose nodes are not ours."""
        if self.local is None:
            raise ClusterError(
                f"{archive} cannot be loaded into your own cluster from here; "
                f"use its own tool, such as `kind load image-archive`."
            )
        return images.load(self.local, archive)

    def audit(self) -> list[dict[str, Any]]:
        """What the local API server finished, oldest first, with ``user``, ``verb`` and ``objectRef``.

        Every write, and every read by a ServiceAccount outside kube-system.
        """
        if self.local is None:
            raise ClusterError("Only the local cluster keeps an audit log; unset KUBECONFIG to use it.")
        path = self.local.logs / "audit.log"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def _same_file(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()
