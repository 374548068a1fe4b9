"""What a cluster leaves on the machine, and its removal.

``leftovers`` looks at the machine itself, not at our records, so that a test can hold ``stop`` to its promise and a
start after a crash can clear what the crash left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from localcluster import cgroups, kernel, network, process
from localcluster.errors import ClusterError
from localcluster.layout import Layout
from localcluster.process import Record

SHIM = "containerd-shim-runc-v2"
PROGRAMS = frozenset(
    {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "containerd",
        SHIM,
        "kubelet",
        "kube-proxy",
        "runc",
    }
)
# Directories that the kubelet and containerd use whatever they are told; only what is ours is removed from them.
CONTAINER_LOG_LINKS = Path("/var/log/containers")
SHIM_SOCKETS = Path("/run/containerd/s")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")


def leftovers(layout: Layout) -> list[str]:
    """One sentence a thing of this cluster that is still on the machine; empty when nothing is."""
    found = [f"process {record.pid} ({record.component})" for record in (*strays(layout), *pod_processes())]
    found += [f"mount {path}" for path in mounts(layout.root)]
    found += [f"link {name}" for name in network.links()]
    found += [f"packet filter table {family} {name}" for family, name in network.tables()]
    found += [f"control group {path}" for path in cgroups.subtrees()]
    found += [f"kernel setting {change}" for change in kernel.changed(kernel_record(layout))]
    found += [f"file {path}" for path in (*network.cached_results(), *outside(layout))]
    if layout.root.is_dir():
        found += [f"file {path}" for path in sorted(layout.root.iterdir()) if path != layout.logs]
    return found


def kernel_record(layout: Layout) -> Path:
    """Where the kernel settings found at start are kept."""
    return layout.root / "kernel.json"


def has_state(layout: Layout) -> bool:
    """True when a cluster was started in this directory and not stopped."""
    return any(path != layout.logs for path in _entries(layout.root))


def strays(layout: Layout) -> list[Record]:
    """Processes that run a component's program with a path below the root among their arguments, recorded or not."""
    below = f"{layout.root}{os.sep}"
    return [
        record
        for pid, arguments in process.command_lines().items()
        if (name := Path(arguments[0]).name) in PROGRAMS and any(below in argument for argument in arguments[1:])
        for record in process.of_pids(name, [pid])
    ]


def pod_processes() -> list[Record]:
    """Every process in a pod."""
    return process.of_pids("pod", sorted(cgroups.pids()))


def mounts(root: Path, table: str | None = None) -> list[Path]:
    """Mount points below ``root``, the deepest and newest first; ``table`` is the text of /proc/self/mountinfo."""
    lines = (Path("/proc/self/mountinfo").read_text() if table is None else table).splitlines()
    points = [Path(_unescaped(line.split()[4])) for line in lines]
    return [point for point in reversed(points) if point.is_relative_to(root)]


def unmount(root: Path) -> None:
    """Unmount everything below ``root``, detaching what is busy; ClusterError when something stays."""
    for point in mounts(root):
        for flags in ((), ("--lazy",)):
            if subprocess.run(["umount", *flags, str(point)], capture_output=True, check=False).returncode == 0:
                break
    if (stuck := mounts(root)) != []:
        raise ClusterError(
            f"{stuck[0]} could not be unmounted; end what uses it (`fuser -m {stuck[0]}`) and stop again."
        )


def log_links(layout: Layout) -> list[Path]:
    """The links that the kubelet keeps to pods' logs outside its own directories."""
    return [
        path
        for path in _entries(CONTAINER_LOG_LINKS)
        if path.is_symlink() and path.readlink().is_relative_to(layout.root)
    ]


def shim_sockets(layout: Layout) -> list[Path]:
    """Sockets of this cluster's shims, which always lie in one directory of the machine; their bundles name them."""
    bundles = layout.run / "containerd" / "io.containerd.runtime.v2.task"
    named = {Path(path.read_text().removeprefix("unix://")) for path in bundles.glob("*/*/address")}
    return sorted(path for path in named if path.exists())


def device_plugin_sockets() -> list[Path]:
    """Sockets of a kubelet that ended; the kubelet of the machine itself, if it has one, still answers on its own."""
    return [path for path in _entries(DEVICE_PLUGINS) if path.is_socket() and not _answers(path)]


def outside(layout: Layout) -> list[Path]:
    """Files of this cluster in directories of the machine."""
    return [*log_links(layout), *shim_sockets(layout), *device_plugin_sockets()]


def remove_files(layout: Layout) -> None:
    """Remove what lies outside the root, then the root without its logs; never follows a mount that is still there."""
    for path in outside(layout):
        path.unlink(missing_ok=True)
    _remove_empty((CONTAINER_LOG_LINKS, SHIM_SOCKETS, SHIM_SOCKETS.parent, DEVICE_PLUGINS, DEVICE_PLUGINS.parent))
    if (still := mounts(layout.root)) != []:
        raise ClusterError(f"{still[0]} is still mounted, so {layout.root} is not deleted; unmount it and stop again.")
    for path in _entries(layout.root):
        if path != layout.logs and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != layout.logs:
            path.unlink()


def _entries(directory: Path) -> Iterable[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else ()


def _remove_empty(directories: Iterable[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _unescaped(path: str) -> str:
    # mountinfo writes space, tab, newline and backslash as three octal digits.
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
