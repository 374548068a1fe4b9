"""Kernel settings that a node needs or that its components change, put back as they were when the cluster stops.

The first start writes the values found; a later one must not, or it would take the cluster's values for the machine's.
"""

from __future__ import annotations

import json
from pathlib import Path

PROC_SYS = Path("/proc/sys")

# Pods are reached through the host, and Service addresses are translated on a bridge as well as between links.
NEEDED = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}
# Written by the kubelet, kube-proxy and the CNI plugins when they start.
TOUCHED = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/conf/all/route_localnet",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_max",
)


def apply(record: Path, settings: Path = PROC_SYS) -> None:
    """Record the present values in ``record`` and set the needed ones; passes over what this kernel lacks."""
    names = [name for name in (*NEEDED, *TOUCHED) if (settings / name).exists()]
    if not record.exists():
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({name: (settings / name).read_text().strip() for name in names}, indent=2) + "\n")
    for name, value in NEEDED.items():
        _write(settings / name, value)


def restore(record: Path, settings: Path = PROC_SYS) -> None:
    """Put back what ``record`` says and remove it; nothing without a record."""
    if not record.exists():
        return
    for name, value in json.loads(record.read_text()).items():
        _write(settings / name, value)
    record.unlink()


def changed(record: Path, settings: Path = PROC_SYS) -> list[str]:
    """The settings that differ from the record, as ``name: now, before``."""
    if not record.exists():
        return []
    before = json.loads(record.read_text())
    now = {name: (settings / name).read_text().strip() for name in before if (settings / name).exists()}
    return [f"{name}: {value}, before {before[name]}" for name, value in now.items() if value != before[name]]


def _write(path: Path, value: str) -> None:
    if path.exists() and path.read_text().strip() != value:
        path.write_text(value)
