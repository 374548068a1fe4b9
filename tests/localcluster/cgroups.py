"""The control groups that pods live in: one subtree of our name in every hierarchy of cgroup v1, or in the one of v2.

A subtree of our own makes two things exact: which processes are pods, and what to remove.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from localcluster.addresses import CGROUP
from localcluster.errors import ClusterError

MOUNT = Path("/sys/fs/cgroup")
REMOVE_DEADLINE_S = 10.0
POLL_S = 0.05


def hierarchies(mount: Path = MOUNT) -> list[Path]:
    """The roots to work below: the mount itself for v2, else each directory in it that is a hierarchy."""
    if (mount / "cgroup.controllers").exists():
        return [mount]
    found = (path for path in sorted(mount.iterdir()) if path.is_dir() and not path.is_symlink())
    return [path for path in found if (path / "cgroup.procs").exists()]


def create(mount: Path = MOUNT) -> None:
    """Make the subtree in every hierarchy: the kubelet wants its root to exist, on v2 with controllers delegated."""
    for root in hierarchies(mount):
        if root == mount:
            _delegate(root)
        (root / CGROUP).mkdir(exist_ok=True)


def subtrees(mount: Path = MOUNT) -> list[Path]:
    """The subtrees of ours that exist now."""
    return [root / CGROUP for root in hierarchies(mount) if (root / CGROUP).is_dir()]


def pids(mount: Path = MOUNT) -> set[int]:
    """Every process in a subtree of ours: the pods' processes and nothing else."""
    found: set[int] = set()
    for tree in subtrees(mount):
        for directory, _, files in os.walk(tree):
            if "cgroup.procs" in files:
                found.update(_members(Path(directory) / "cgroup.procs"))
    return found


def remove(mount: Path = MOUNT) -> None:
    """Remove the subtrees, deepest first; waits, as the kernel frees a group a moment after its last process."""
    deadline = time.monotonic() + REMOVE_DEADLINE_S
    while left := subtrees(mount):
        failures = [failure for tree in left if (failure := _remove_tree(tree)) is not None]
        if failures and time.monotonic() > deadline:
            raise ClusterError(
                f"The control group {failures[0]} could not be removed within {REMOVE_DEADLINE_S:.0f} s; "
                f"end the processes in its cgroup.procs and stop again."
            )
        if failures:
            time.sleep(POLL_S)


def _delegate(root: Path) -> None:
    for controller in (root / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # one that this kernel cannot delegate; the kubelet names it if it needs it
            (root / "cgroup.subtree_control").write_text(f"+{controller}")


def _members(procs: Path) -> set[int]:
    try:
        return {int(line) for line in procs.read_text().split()}
    except OSError:  # removed since it was listed, or a threaded v2 group that cannot be read
        return set()


def _remove_tree(tree: Path) -> Path | None:
    """The first directory that would not go, or None."""
    for directory, _, _ in os.walk(tree, topdown=False):
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return Path(directory)
    return None
