"""How much host memory this process may still take, and which limit says so.

In a pod the kernel shows the memory of the whole machine, and a process that believes it is killed. The tightest of all
limits counts: the kernel's, each cgroup's, and one that the user set (RUNTIME.md, 14). Nothing is cached: call again
before each decision, for what others take changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stowplan_agent.inventory.cgroups import Cap, cgroup_caps
from stowplan_agent.inventory.errors import InventoryError

KIB: Final = 1024


@dataclass(frozen=True)
class HostLimits:
    """All limits that apply, in bytes; at least one."""

    caps: tuple[Cap, ...]

    @property
    def tightest(self) -> Cap:
        """The limit that leaves least; the first of equals."""
        return min(self.caps, key=lambda cap: cap.headroom)

    @property
    def headroom(self) -> int:
        """Bytes that can still be taken, before any reserve."""
        return self.tightest.headroom

    @property
    def decided_by(self) -> str:
        """The name of the limit that leaves least."""
        return self.tightest.name


def read_host_limits(
    root: Path = Path("/"), *, explicit: int | None = None, explicit_name: str = "the memory limit set"
) -> HostLimits:
    """Read the limits on host memory. ``root`` is the machine's root, or a tree like it in a test.

    ``explicit`` (bytes) is the whole that this process may have, by the user's word or the downward API; what it holds
    already counts as used. Raises `InventoryError` when nothing says how much memory there is.
    """
    caps: list[Cap] = []
    if explicit is not None:
        if explicit <= 0:
            raise InventoryError(f"{explicit_name} is {explicit} bytes; set more than 0, such as 8Gi")
        status = _kib_fields(root / "proc/self/status")
        caps.append(Cap(explicit_name, explicit, status.get("RssAnon", 0) + status.get("RssShmem", 0)))
    caps += cgroup_caps(root)
    memory = _kib_fields(root / "proc/meminfo")
    if "MemTotal" in memory:
        available = memory.get("MemAvailable", memory.get("MemFree", 0))
        caps.append(Cap("MemAvailable of the machine", memory["MemTotal"], memory["MemTotal"] - available))
    if not caps:
        raise InventoryError(f"{root / 'proc/meminfo'} tells no memory size; set an explicit memory limit")
    return HostLimits(tuple(caps))


def _kib_fields(path: Path) -> dict[str, int]:
    """The fields of a ``proc`` file that are in kB (which means KiB there), in bytes."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    rows = (line.replace(":", " ").split() for line in lines)
    return {row[0]: int(row[1]) * KIB for row in rows if len(row) == 3 and row[2] == "kB" and row[1].isdigit()}
