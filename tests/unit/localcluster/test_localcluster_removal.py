"""What stop finds and removes: only what is the cluster's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from localcluster import cgroups, network, process, residue
from localcluster.errors import ClusterError
from localcluster.layout import Layout

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /srv/cluster/data/kubelet rw - tmpfs tmpfs rw
31 30 0:41 / /srv/cluster/data/kubelet/pods/a/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
32 22 0:42 / /srv/cluster-of-another/data rw - tmpfs tmpfs rw
33 22 0:43 / /srv/cluster/with\\040space rw - tmpfs tmpfs rw
"""
SAVED = """\
*nat
:CNI-HOSTPORT-DNAT - [0:0]
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"stowplan\\" id: \\"c1\\"" -j CNI-DN-aaa
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"another\\" id: \\"c2\\"" -j CNI-DN-bbb
COMMIT
"""


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A cluster's directories, and none of the machine's own in reach."""
    for name in ("CONTAINER_LOG_LINKS", "SHIM_SOCKETS", "DEVICE_PLUGINS"):
        monkeypatch.setattr(residue, name, tmp_path / "machine" / name.lower() / "directory")
    return Layout(root=tmp_path / "root", cache=tmp_path / "cache")


def test_mounts_below_the_root_are_found_newest_first() -> None:
    found = residue.mounts(Path("/srv/cluster"), MOUNTS)
    assert [str(path) for path in found] == [
        "/srv/cluster/with space",
        "/srv/cluster/data/kubelet/pods/a/volumes/kubernetes.io~projected/token",
        "/srv/cluster/data/kubelet",
    ]


def test_host_port_rules_of_another_network_stay() -> None:
    removals = network.host_port_removals(SAVED)
    comment = 'dnat name: "stowplan" id: "c1"'
    rule = ["CNI-HOSTPORT-DNAT", "-p", "tcp", "-m", "comment", "--comment", comment]
    assert removals == [
        ["-F", "CNI-DN-aaa"],
        ["-D", *rule, "-j", "CNI-DN-aaa"],
        ["-X", "CNI-DN-aaa"],
    ]


def _hierarchy(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text("1\n")
    return path


def test_control_groups_of_v1_and_of_v2_are_told_apart(tmp_path: Path) -> None:
    first = tmp_path / "v1"
    names = [_hierarchy(first / name) for name in ("memory", "cpu")]
    (first / "not-a-hierarchy").mkdir()
    (first / "cpuacct").symlink_to("cpu")
    assert cgroups.hierarchies(first) == sorted(names)
    second = _hierarchy(tmp_path / "v2")
    (second / "cgroup.controllers").write_text("cpu memory\n")
    assert cgroups.hierarchies(second) == [second]


def test_members_of_a_subtree_are_the_processes_of_all_its_groups(tmp_path: Path) -> None:
    root = _hierarchy(tmp_path / "memory")
    cgroups.create(tmp_path)
    for name, pids in (("kubepods", ""), ("kubepods/pod1", "7\n8\n"), ("kubepods/pod2", "9\n")):
        group = root / "stowplan" / name
        group.mkdir()
        (group / "cgroup.procs").write_text(pids)
    assert cgroups.pids(tmp_path) == {7, 8, 9}


def test_a_recorded_process_is_ended_and_a_reused_pid_is_not(layout: Layout) -> None:
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    record = process.start(layout, "sleeper", sleeper)
    assert process.recorded(layout) == {"sleeper": record}
    reused = process.Record("sleeper", os.getpid(), record.start_time + 1)
    assert not reused.alive
    process.end([record, reused], grace_s=5)
    assert not record.alive


def test_a_process_that_ignores_the_request_is_killed(layout: Layout) -> None:
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    record = process.start(layout, "deaf", [sys.executable, "-c", script])
    log = layout.log("deaf")
    while not log.read_text():
        assert record.alive
        os.sched_yield()
    process.end([record], grace_s=0)
    assert not record.alive


def test_strays_are_our_programs_with_our_root_only(layout: Layout, tmp_path: Path) -> None:
    tool = tmp_path / "containerd"
    tool.symlink_to("/bin/sleep")
    ours = [str(tool), "600", str(layout.root / "config")]
    others = ([str(tool), "600", str(tmp_path / "another" / "config")], ["tail", str(layout.root / "logs" / "x")])
    lines = {os.getpid(): ours, os.getppid(): others[0], 1: others[1]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "command_lines", lambda: lines)
        assert [record.pid for record in residue.strays(layout)] == [os.getpid()]


def test_removal_keeps_the_logs_and_nothing_else(layout: Layout) -> None:
    for directory in (layout.logs, layout.data / "etcd", layout.pki):
        directory.mkdir(parents=True)
    (layout.root / "kubeconfig").touch()
    layout.log("etcd").write_text("said\n")
    assert residue.has_state(layout)
    residue.remove_files(layout)
    assert [path.name for path in layout.root.iterdir()] == ["logs"]
    assert not residue.has_state(layout)


def test_removal_never_walks_into_a_mount(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    (kept := layout.data / "volume" / "precious").mkdir(parents=True)
    monkeypatch.setattr(residue, "mounts", lambda root: [layout.data / "volume"])
    with pytest.raises(ClusterError, match="still mounted"):
        residue.remove_files(layout)
    assert kept.exists()


def test_tail_shows_the_end_of_a_log_and_where_the_rest_is(layout: Layout) -> None:
    layout.logs.mkdir(parents=True)
    layout.log("etcd").write_text("".join(f"line {number}\n" for number in range(100)))
    shown = process.tail(layout, "etcd", lines=2).splitlines()
    assert shown == [f"the last lines of {layout.log('etcd')}:", "    line 98", "    line 99"]


def test_command_lines_show_this_process() -> None:
    assert process.command_lines()[os.getpid()] == sys.orig_argv
