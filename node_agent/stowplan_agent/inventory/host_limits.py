"""How much host memory this process may still take, and which limit says so.

In a pod the kernel shows the memory of the whole machine, and a process that believes it is killed. The tightest of all
limits counts: the kernel's, each cgroup's, and one that the user set (RUNTIME.md, 14). Nothing is cached: call again
before each decision, for what others take changes.

A virtual machine may show less than it will have: its MemTotal grows as memory is used. Then the size of its memory
blocks is the kernel's word; and where a cgroup grants more than a MemTotal that was seen to grow, the cgroup's counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stowplan_agent.inventory.cgroups import Cap, cgroup_caps
from stowplan_agent.inventory.errors import InventoryError
from stowplan_api.host_reserve import host_reserve

KIB: Final = 1024
GROWS_BEYOND: Final = (9, 8)
"""Memory blocks of more than 9/8 of MemTotal: firmware and the kernel itself keep a few percent, never this much."""
BLOCKS: Final = "sys/devices/system/memory"
_first_totals: Final[dict[Path, int]] = {}
"""The first MemTotal seen below each root: no limit, only what tells a machine that grows from one that does not."""


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

    def pin_budget(self, reserve: int | None = None) -> int:
        """Bytes that host copies and pins may take: the headroom less ``reserve``, or less the default one."""
        return max(self.headroom - host_reserve(self.tightest.limit, reserve), 0)


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
    grants = cgroup_caps(root)
    caps += grants
    machine = _machine(root)
    if machine is not None and not (_has_grown(root, machine) and any(cap.limit > machine.limit for cap in grants)):
        caps.append(machine)
    if not caps:
        raise InventoryError(f"{root / 'proc/meminfo'} tells no memory size; set an explicit memory limit")
    return HostLimits(tuple(caps))


def _machine(root: Path) -> Cap | None:
    """The kernel's own word; None where it says nothing."""
    memory = _kib_fields(root / "proc/meminfo")
    total = memory.get("MemTotal")
    if total is None:
        return None
    used = total - memory.get("MemAvailable", memory.get("MemFree", 0))
    blocks = _block_bytes(root / BLOCKS, total)
    if blocks is not None:
        # as of MemTotal on machines of a fixed size: the kernel's own tables take a 64th of what it manages
        return Cap("memory blocks of the machine", blocks - blocks // 64, used)
    return Cap("MemAvailable of the machine", total, used)


def _block_bytes(folder: Path, total: int) -> int | None:
    """The bytes of the memory blocks that are online, where they are far more than ``total``; else None."""
    try:
        size = int((folder / "block_size_bytes").read_text(encoding="ascii"), 16)
        blocks = list(folder.glob("memory[0-9]*"))
        more, less = GROWS_BEYOND
        if size * len(blocks) * less <= total * more:
            return None
        online = sum((block / "state").read_text(encoding="ascii").strip() == "online" for block in blocks)
    except (OSError, ValueError):
        return None
    return size * online if size * online * less > total * more else None


def _has_grown(root: Path, machine: Cap) -> bool:
    return machine.limit > _first_totals.setdefault(root, machine.limit)


def _kib_fields(path: Path) -> dict[str, int]:
    """The fields of a ``proc`` file that are in kB (which means KiB there), in bytes."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    rows = (line.replace(":", " ").split() for line in lines)
    return {row[0]: int(row[1]) * KIB for row in rows if len(row) == 3 and row[2] == "kB" and row[1].isdigit()}
