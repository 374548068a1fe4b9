"""How many threads torch's CPU kernels get: the pod's CPU quota, never the host's count of cores.

Threads beyond the quota wait for one another: a tiny pipeline that took 0.09 s with one thread took 7.2 s with two on
two busy cores. On a GPU these threads only prepare inputs.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs that this process's cgroup may use, from v2 ``cpu.max`` or v1 ``cpu.cfs_quota_us``.

    None without a limit: the kernel writes ``max`` or -1 for that.
    """
    group = root / "sys/fs/cgroup"
    v2 = _words(group / "cpu.max")
    v1 = _words(group / "cpu/cpu.cfs_quota_us") + _words(group / "cpu/cpu.cfs_period_us")
    for words in (v2, v1):
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
            return int(words[0]) / int(words[1])
    return None


def limit_threads(root: Path = Path("/"), *, ranks: int = 1) -> int:
    """Set torch's threads to ``OMP_NUM_THREADS`` if set, else to a rank's share of the quota, at least one.

    Returns the number.
    """
    stated = os.environ.get("OMP_NUM_THREADS", "")
    if stated.isdigit() and int(stated) > 0:
        count = int(stated)
    else:
        quota = cpu_quota(root)
        count = int(quota) if quota is not None else (os.cpu_count() or 1) // 2
        count = max(1, count // ranks)
    torch.set_num_threads(count)
    return count


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []
