"""The memory caps of this process's cgroup and of every ancestor it can see, in both versions of cgroups.

A pod's cap may be on any level: on the container, on the pod above it, on a slice above that. What counts as used is
what cannot be taken back. The kernel takes pages of files back, but not those of shared memory, which it counts as file
pages too, nor file pages that are locked, which it keeps off its lists of evictable ones. A page cache full of the
checkpoint must not look like a full pod (RUNTIME.md, 14).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from stowplan_agent.inventory.errors import InventoryError

NO_CAP: Final = 1 << 60
"""Bytes. Version 1 says "no cap" as the largest page-aligned long (2^63 - 4096); nothing real is as large as this."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit on host memory: its name for messages, its size, and what is used of it and cannot be reclaimed."""

    name: str
    limit: int
    used: int

    @property
    def headroom(self) -> int:
        """Bytes that are left, never negative."""
        return max(self.limit - self.used, 0)


def cgroup_caps(root: Path) -> tuple[Cap, ...]:
    """Every real memory cap on this process, own cgroup first. ``root`` is ``/``, or a tree like it in a test.

    Raises `InventoryError` for a memory file that cannot be understood: guessing "no cap" would end in an OOM kill.
    """
    caps: list[Cap] = []
    for version, group in _own_groups(root):
        mount, mounted = _mount(root, version)
        for folder in _up_to_mount(mount, _below(group, mounted)):
            name = "/" + str(folder.relative_to(mount)) if folder != mount else "/"
            caps += _caps_v2(folder, name) if version == 2 else _caps_v1(folder, name)
    return tuple(caps)


def _caps_v2(folder: Path, name: str) -> Iterator[Cap]:
    # beyond memory.high the process is throttled until pages are reclaimed, and pinned pages never are
    for file in ("memory.max", "memory.high"):
        limit = _number(folder / file)
        if limit is not None:
            stat = _stat(folder / "memory.stat")
            used = _used(_number(folder / "memory.current"), stat, "file", "")
            yield Cap(f"{file} of cgroup {name}", limit, used)


def _caps_v1(folder: Path, name: str) -> Iterator[Cap]:
    stat = _stat(folder / "memory.stat")
    # without total_ the numbers are of this cgroup alone, and its usage is of all below it
    used = _used(_number(folder / "memory.usage_in_bytes"), stat, "cache", "total_" if "total_cache" in stat else "")
    limit = _number(folder / "memory.limit_in_bytes")
    if limit is not None:
        yield Cap(f"memory.limit_in_bytes of cgroup {name}", limit, used)
    # the tightest cap of all ancestors, also of those that are not mounted here
    above = stat.get("hierarchical_memory_limit", NO_CAP)
    if above < min(limit or NO_CAP, NO_CAP):
        yield Cap(f"hierarchical_memory_limit of cgroup {name}", above, used)


def _used(current: int | None, stat: Mapping[str, int], file: str, prefix: str) -> int:
    """Bytes in use less those that the kernel can take back; ``file`` is what this version calls pages of files."""
    reclaimable = max(stat.get(prefix + file, 0) - stat.get(f"{prefix}shmem", 0), 0)
    evictable = [stat[key] for key in (f"{prefix}active_file", f"{prefix}inactive_file") if key in stat]
    if len(evictable) == 2:
        reclaimable = min(reclaimable, sum(evictable))
    return max((current or 0) - reclaimable, 0)


def _own_groups(root: Path) -> Iterator[tuple[int, str]]:
    """Version and path of the cgroups that account this process's memory."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield 2, group
        elif "memory" in controllers.split(","):
            yield 1, group


def _mount(root: Path, version: int) -> tuple[Path, str]:
    """Where the hierarchy is mounted, and which cgroup its top is (not ``/`` where there is no cgroup namespace)."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mounted, point, kind = left.split()[3:5] + right.split()[:1] if right else ("", "", "")
        if kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in right.split()[-1].split(","):
            return root / _unescape(point).lstrip("/"), _unescape(mounted)
    return root / ("sys/fs/cgroup" if version == 2 else "sys/fs/cgroup/memory"), "/"


def _below(group: str, mounted: str) -> PurePosixPath:
    """The cgroup's path below the mount; the mount itself where the cgroup is outside it (another namespace's)."""
    path = PurePosixPath(group)
    if ".." in path.parts or not path.is_relative_to(mounted):
        return PurePosixPath()
    return path.relative_to(mounted)


def _up_to_mount(mount: Path, below: PurePosixPath) -> Iterator[Path]:
    for folder in (below, *below.parents):
        if (mount / folder).is_dir():
            yield mount / folder


def _number(path: Path) -> int | None:
    """The number in a memory file; None for no cap: no such file, ``max``, or a sentinel."""
    text = _text(path).strip()
    if text in ("", "max"):
        return None
    if not text.isascii() or not text.isdigit():
        raise InventoryError(f"{path} holds {text[:40]!r} instead of a number of bytes; set an explicit memory limit")
    return number if (number := int(text)) < NO_CAP else None


def _stat(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InventoryError(f"{path} cannot be read ({error.strerror}); set an explicit memory limit") from None


def _unescape(point: str) -> str:
    """mountinfo writes a space in a path as ``\\040``."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
