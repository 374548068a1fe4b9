"""Lets a pod run this very Python with this very project, without building an image of several GiB.

The pod's image holds a shell only; the machine's libraries, the interpreter, the virtual environment and the source
tree are mounted read-only at the paths they have here. Both ways a user has to change a pod can carry it: the
``podTemplate`` of a DiffusionDeployment and the extra volumes of the chart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster.images import HOST, SHELL_PATH

SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ssl", "/etc/alternatives", "/etc/ld.so.cache")
SERVER_CONTAINER = "server"
TREE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class HostPython:
    """An interpreter of this machine and the paths it needs in a pod; no path lies below another."""

    python: Path
    paths: tuple[Path, ...]
    image: str = HOST

    @classmethod
    def here(cls, tree: Path = TREE, extra: Iterable[Path] = ()) -> HostPython:
        """The running interpreter with its environment, the project at ``tree``, and ``extra`` paths."""
        wanted = [*map(Path, SYSTEM), Path(sys.base_prefix), Path(sys.prefix), tree, *extra]
        return cls(Path(sys.executable), outermost(path for path in wanted if path.exists()))

    def volumes(self) -> list[dict[str, object]]:
        """Pod volumes, one a path."""
        kinds = {path: "Directory" if path.is_dir() else "File" for path in self.paths}
        return [
            {"name": _name(index), "hostPath": {"path": str(path), "type": kinds[path]}}
            for index, path in enumerate(self.paths)
        ]

    def mounts(self) -> list[dict[str, object]]:
        """The mounts that belong to ``volumes``, all read-only."""
        return [
            {"name": _name(index), "mountPath": str(path), "readOnly": True} for index, path in enumerate(self.paths)
        ]

    def environment(self) -> list[dict[str, object]]:
        """A search path on which ``python`` and the project's commands are this environment's."""
        return [{"name": "PATH", "value": f"{self.python.parent}:{SHELL_PATH}"}]

    def pod_template(self, container: str = SERVER_CONTAINER) -> dict[str, object]:
        """A partial pod template that gives ``container`` this machine's Python and leaves its command as it is."""
        override: dict[str, object] = {
            "name": container,
            "image": self.image,
            "imagePullPolicy": "Never",
            "env": self.environment(),
            "volumeMounts": self.mounts(),
        }
        # The cluster has no DNS of its own; the default policy would put a warning among the Events of every pod.
        return {"spec": {"dnsPolicy": "Default", "volumes": self.volumes(), "containers": [override]}}

    def chart_values(self) -> dict[str, object]:
        """Values of the chart: the operator on this machine's Python, and every serving pod it makes."""
        repository, tag = self.image.rsplit(":", 1)
        image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
        return {
            "image": image,
            "command": [str(self.python), "-m", "stowplan_operator"],
            "dnsPolicy": "Default",
            "extraEnv": self.environment(),
            "extraVolumes": self.volumes(),
            "extraVolumeMounts": self.mounts(),
            "agent": {"image": image, "podTemplate": self.pod_template()},
        }


def outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The distinct paths that lie below no other of them, in the order given."""
    distinct = list(dict.fromkeys(paths))
    return tuple(path for path in distinct if not any(other in path.parents for other in distinct))


def _name(index: int) -> str:
    return f"host-{index}"
