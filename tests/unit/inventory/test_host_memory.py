"""The tightest real limit decides, on fake trees of both cgroup versions (cases H5 and H6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.host_limits import read_host_limits

KIB, GIB, TIB = 1 << 10, 1 << 30, 1 << 40
NO_CAP_V1 = (1 << 63) - 4096
Files = dict[str, str | int]

V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
HOST: Files = {"proc/meminfo": f"MemTotal: {2 * TIB // KIB} kB\nMemFree: 1 kB\nMemAvailable: {TIB // KIB} kB\n"}
IN_POD: Files = HOST | {"proc/self/cgroup": "0::/pods/pod1/c1\n"}
IN_POD_V1: Files = HOST | {"proc/self/cgroup": "9:cpu,cpuacct:/x\n5:memory:/pods/pod1/c1\n1:name=systemd:/x\n"}
MOUNT_V2 = "30 23 0:26 {top} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNT_V1 = "35 31 0:32 {top} {point} rw,relatime - cgroup cgroup rw,memory\n"


def tree(root: Path, files: Files) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


def v2(folder: str, limit: str | int, current: int = 0, **stat: int) -> Files:
    lines = "\n".join(f"{key} {value}" for key, value in stat.items())
    return {f"{folder}/memory.max": limit, f"{folder}/memory.current": current, f"{folder}/memory.stat": lines}


def v1(folder: str, limit: int, usage: int = 0, **stat: int) -> Files:
    lines = "\n".join(f"{key} {value}" for key, value in stat.items())
    files: Files = {f"{folder}/memory.limit_in_bytes": limit, f"{folder}/memory.usage_in_bytes": usage}
    return files | {f"{folder}/memory.stat": lines}


def blocks(count: int, *, first: int = 0, state: str = "online") -> Files:
    """Memory blocks of 1 GiB as the kernel lists them."""
    folder = "sys/devices/system/memory"
    files: Files = {f"{folder}/block_size_bytes": f"{GIB:x}"}
    return files | {f"{folder}/memory{first + number}/state": state for number in range(count)}


CASES: dict[str, tuple[Files, int, str]] = {
    "no cgroup: what is available": (HOST, TIB, "MemAvailable of the machine"),
    "an old kernel without MemAvailable": (
        {"proc/meminfo": "MemTotal: 8192 kB\nMemFree: 4096 kB"},
        4096 * KIB,
        "MemAvailable of the machine",
    ),
    "H5 own cap": (IN_POD | v2(f"{V2}/pods/pod1/c1", 8 * GIB, GIB), 7 * GIB, "memory.max of cgroup /pods/pod1/c1"),
    "H5 tighter parent": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", 8 * GIB, GIB) | v2(f"{V2}/pods/pod1", 6 * GIB, 2 * GIB),
        4 * GIB,
        "memory.max of cgroup /pods/pod1",
    ),
    "H5 looser parent that others have filled": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", 8 * GIB, GIB) | v2(f"{V2}/pods", 64 * GIB, 61 * GIB),
        3 * GIB,
        "memory.max of cgroup /pods",
    ),
    "H5 max in the container under a capped pod": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", "max", GIB) | v2(f"{V2}/pods/pod1", 16 * GIB, 2 * GIB),
        14 * GIB,
        "memory.max of cgroup /pods/pod1",
    ),
    "H5 max everywhere": (IN_POD | v2(f"{V2}/pods/pod1/c1", "max", GIB), TIB, "MemAvailable of the machine"),
    "H5 cap above the machine": (IN_POD | v2(f"{V2}/pods/pod1/c1", 3 * TIB), TIB, "MemAvailable of the machine"),
    "a cap that is overrun leaves nothing": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", GIB, 2 * GIB),
        0,
        "memory.max of cgroup /pods/pod1/c1",
    ),
    "memory.high throttles what is pinned": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", 8 * GIB, GIB) | {f"{V2}/pods/pod1/c1/memory.high": 5 * GIB},
        4 * GIB,
        "memory.high of cgroup /pods/pod1/c1",
    ),
    "H6 only reclaimable pages are given back": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", 80 * GIB, 70 * GIB, file=60 * GIB, shmem=5 * GIB),
        65 * GIB,
        "memory.max of cgroup /pods/pod1/c1",
    ),
    "H6 in version 1": (
        IN_POD_V1
        | v1(f"{V1}/pods/pod1/c1", 80 * GIB, 70 * GIB, total_cache=60 * GIB, total_shmem=5 * GIB, cache=1, shmem=0),
        65 * GIB,
        "memory.limit_in_bytes of cgroup /pods/pod1/c1",
    ),
    "H6 locked pages of files stay": (
        IN_POD
        | v2(
            f"{V2}/pods/pod1/c1",
            80 * GIB,
            70 * GIB,
            file=60 * GIB,
            shmem=5 * GIB,
            active_file=10 * GIB,
            inactive_file=20 * GIB,
            unevictable=25 * GIB,
        ),
        40 * GIB,
        "memory.max of cgroup /pods/pod1/c1",
    ),
    "H6 locked pages of files stay in version 1": (
        IN_POD_V1
        | v1(
            f"{V1}/pods/pod1/c1",
            80 * GIB,
            70 * GIB,
            total_cache=60 * GIB,
            total_shmem=5 * GIB,
            total_active_file=10 * GIB,
            total_inactive_file=20 * GIB,
            active_file=1,
            inactive_file=1,
        ),
        40 * GIB,
        "memory.limit_in_bytes of cgroup /pods/pod1/c1",
    ),
    "H6 version 1 without totals": (
        IN_POD_V1 | v1(f"{V1}/pods/pod1/c1", 8 * GIB, 7 * GIB, cache=6 * GIB, shmem=GIB),
        6 * GIB,
        "memory.limit_in_bytes of cgroup /pods/pod1/c1",
    ),
    "H6 anonymous memory and shared memory are not given back": (
        IN_POD | v2(f"{V2}/pods/pod1/c1", 80 * GIB, 70 * GIB, anon=60 * GIB, file=5 * GIB, shmem=5 * GIB),
        10 * GIB,
        "memory.max of cgroup /pods/pod1/c1",
    ),
    "H5 version 1, own cap": (
        IN_POD_V1 | v1(f"{V1}/pods/pod1/c1", 8 * GIB, GIB),
        7 * GIB,
        "memory.limit_in_bytes of cgroup /pods/pod1/c1",
    ),
    "H5 version 1, sentinel below a capped parent": (
        IN_POD_V1 | v1(f"{V1}/pods/pod1/c1", NO_CAP_V1, GIB) | v1(f"{V1}/pods", 4 * GIB, GIB),
        3 * GIB,
        "memory.limit_in_bytes of cgroup /pods",
    ),
    "H5 version 1, 2^63": (IN_POD_V1 | v1(f"{V1}/pods/pod1/c1", 1 << 63), TIB, "MemAvailable of the machine"),
    "version 1, an ancestor that is not mounted here": (
        IN_POD_V1 | v1(f"{V1}/pods/pod1/c1", NO_CAP_V1, GIB, hierarchical_memory_limit=5 * GIB),
        4 * GIB,
        "hierarchical_memory_limit of cgroup /pods/pod1/c1",
    ),
    "both versions at once": (
        HOST | {"proc/self/cgroup": "4:memory:/a\n0::/b"} | v1(f"{V1}/a", 8 * GIB) | v2(f"{V2}/b", 9 * GIB),
        8 * GIB,
        "memory.limit_in_bytes of cgroup /a",
    ),
    "a cgroup namespace: own group is the top": (
        HOST | {"proc/self/cgroup": "0::/"} | v2(V2, 8 * GIB, GIB),
        7 * GIB,
        "memory.max of cgroup /",
    ),
    "a group outside the namespace": (
        HOST | {"proc/self/cgroup": "0::/../../c1"} | v2(V2, 8 * GIB, GIB),
        7 * GIB,
        "memory.max of cgroup /",
    ),
    "no cgroup namespace: the mount's top is the container": (
        HOST
        | {"proc/self/cgroup": "5:memory:/docker/c1"}
        | {"proc/self/mountinfo": MOUNT_V1.format(top="/docker/c1", point="/mnt/mem")}
        | v1("mnt/mem", 8 * GIB, GIB),
        7 * GIB,
        "memory.limit_in_bytes of cgroup /",
    ),
    "mounted elsewhere, with a space": (
        HOST
        | {"proc/self/cgroup": "0::/p"}
        | {"proc/self/mountinfo": MOUNT_V2.format(top="/", point="/my\\040cg")}
        | v2("my cg/p", GIB),
        GIB,
        "memory.max of cgroup /p",
    ),
    "a machine that shows less than its memory blocks": (
        {"proc/meminfo": f"MemTotal: {4 * GIB // KIB} kB\nMemAvailable: {3 * GIB // KIB} kB\n"} | blocks(64),
        63 * GIB - GIB,
        "memory blocks of the machine",
    ),
    "a machine that shows less, under a cap": (
        {"proc/meminfo": f"MemTotal: {4 * GIB // KIB} kB\nMemAvailable: {3 * GIB // KIB} kB\n"}
        | {"proc/self/cgroup": "0::/pod"}
        | v2(f"{V2}/pod", 32 * GIB, GIB)
        | blocks(64),
        31 * GIB,
        "memory.max of cgroup /pod",
    ),
    "memory blocks that are offline are not there": (
        {"proc/meminfo": f"MemTotal: {4 * GIB // KIB} kB\nMemAvailable: {3 * GIB // KIB} kB\n"}
        | blocks(4)
        | blocks(60, first=4, state="offline"),
        3 * GIB,
        "MemAvailable of the machine",
    ),
    "a machine whose kernel keeps the usual few percent": (
        {"proc/meminfo": f"MemTotal: {62 * GIB // KIB} kB\nMemAvailable: {60 * GIB // KIB} kB\n"} | blocks(64),
        60 * GIB,
        "MemAvailable of the machine",
    ),
    "a group whose folder is gone": (IN_POD | v2(f"{V2}/pods", 8 * GIB), 8 * GIB, "memory.max of cgroup /pods"),
}


def named(*prefixes: str) -> pytest.MarkDecorator:
    """The cases whose names begin so."""
    chosen = {name: case for name, case in CASES.items() if name.startswith(prefixes)}
    assert len(chosen) >= 2
    return pytest.mark.parametrize(("files", "headroom", "decided_by"), chosen.values(), ids=chosen.keys())


@named("H5")
def test_h5_the_tightest_real_cap_decides(files: Files, headroom: int, decided_by: str, tmp_path: Path) -> None:
    """RUNTIME 14, on a machine that shows 2 TiB."""
    limits = read_host_limits(tree(tmp_path, files))
    assert (limits.headroom, limits.decided_by) == (headroom, decided_by)


@named("H6")
def test_h6_only_reclaimable_pages_are_given_back(files: Files, headroom: int, decided_by: str, tmp_path: Path) -> None:
    """RUNTIME 14: a page cache full of the checkpoint is not a full pod."""
    limits = read_host_limits(tree(tmp_path, files))
    assert (limits.headroom, limits.decided_by) == (headroom, decided_by)


@named(*(name for name in CASES if not name.startswith(("H5", "H6"))))
def test_runtime_14_the_tightest_limit_decides(files: Files, headroom: int, decided_by: str, tmp_path: Path) -> None:
    limits = read_host_limits(tree(tmp_path, files))
    assert (limits.headroom, limits.decided_by) == (headroom, decided_by)


def test_an_explicit_limit_counts_what_the_process_holds(tmp_path: Path) -> None:
    status = (
        f"Name:\tx\nVmRSS:\t9 kB\nRssAnon:\t{GIB // KIB} kB\nRssFile:\t{GIB // KIB} kB\nRssShmem:\t{GIB // KIB} kB\n"
    )
    root = tree(tmp_path, IN_POD | v2(f"{V2}/pods/pod1/c1", 8 * GIB, GIB) | {"proc/self/status": status})
    limits = read_host_limits(root, explicit=6 * GIB, explicit_name="spec.resources.memory")
    assert (limits.headroom, limits.decided_by) == (4 * GIB, "spec.resources.memory")
    assert read_host_limits(root, explicit=60 * GIB).headroom == 7 * GIB


@pytest.mark.parametrize("explicit", [0, -1])
def test_an_explicit_limit_of_nothing_is_refused(explicit: int, tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="set more than 0"):
        read_host_limits(tree(tmp_path, HOST), explicit=explicit)


def test_limits_are_read_anew_each_time(tmp_path: Path) -> None:
    tree(tmp_path, IN_POD | v2(f"{V2}/pods/pod1/c1", 8 * GIB, GIB))
    before = read_host_limits(tmp_path).headroom
    tree(tmp_path, v2(f"{V2}/pods/pod1/c1", 8 * GIB, 3 * GIB))
    assert (before, read_host_limits(tmp_path).headroom) == (7 * GIB, 5 * GIB)


def meminfo(total: int, available: int) -> Files:
    return {"proc/meminfo": f"MemTotal: {total // KIB} kB\nMemAvailable: {available // KIB} kB\n"}


def test_a_memtotal_that_grew_does_not_overrule_a_cgroup_that_grants_more(tmp_path: Path) -> None:
    """A cap above a MemTotal that stays is none; above one that is seen to grow, it is what the machine will have."""
    tree(tmp_path, meminfo(8 * GIB, 7 * GIB) | {"proc/self/cgroup": "0::/pod"} | v2(f"{V2}/pod", 32 * GIB, GIB))
    assert read_host_limits(tmp_path).decided_by == "MemAvailable of the machine"
    tree(tmp_path, meminfo(12 * GIB, 2 * GIB))
    limits = read_host_limits(tmp_path)
    assert (limits.headroom, limits.decided_by) == (31 * GIB, "memory.max of cgroup /pod")
    tree(tmp_path, meminfo(64 * GIB, 2 * GIB))
    assert read_host_limits(tmp_path).headroom == 2 * GIB, "grown beyond the cap, others have taken it"


def test_a_memtotal_that_grew_counts_where_no_cgroup_says_more(tmp_path: Path) -> None:
    for total, available in ((8, 7), (12, 2)):
        tree(tmp_path, meminfo(total * GIB, available * GIB))
        assert read_host_limits(tmp_path).headroom == available * GIB


@pytest.mark.parametrize(
    ("limit", "stated", "budget"),
    [(80, None, 65 - 4), (80, 10 * GIB, 55), (80, 0, 65), (80, 99 * GIB, 0)],
)
def test_the_pin_budget_is_headroom_less_a_reserve(limit: int, stated: int | None, budget: int, tmp_path: Path) -> None:
    used = v2(f"{V2}/pods/pod1/c1", limit * GIB, 70 * GIB, file=60 * GIB, shmem=5 * GIB)
    assert read_host_limits(tree(tmp_path, IN_POD | used)).pin_budget(stated) == budget * GIB


def test_what_cannot_be_understood_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="tells no memory size"):
        read_host_limits(tmp_path)
    with pytest.raises(InventoryError, match="'lots' instead of a number"):
        read_host_limits(tree(tmp_path, IN_POD | v2(f"{V2}/pods/pod1/c1", "lots")))


def test_this_machine_has_limits() -> None:
    assert read_host_limits().headroom > 0
