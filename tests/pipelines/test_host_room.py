"""RUNTIME 14: the limits of the host are read anew before a plan is made, with what is held already given back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from starts import settings_of
from stowplan_agent.lifecycle.preparation import Preparation
from stowplan_agent.weights.ledger import Tier

MIB, GIB = 1 << 20, 1 << 30
RESERVE = 64 * MIB


def pod(root: Path, used: int) -> Path:
    """A machine of 64 GiB and a pod of 1 GiB, of which ``used`` bytes cannot be taken back."""
    files = {
        "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {60 << 20} kB\n",
        "proc/self/cgroup": "0::/pod\n",
        "sys/fs/cgroup/pod/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/pod/memory.current": f"{used}\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_what_neighbours_took_since_the_start_is_not_planned_with(tiny_wan: Path, tmp_path: Path) -> None:
    spec = {"residency": {"hostReserve": str(RESERVE)}}
    settings = replace(settings_of(tiny_wan, "64Mi", spec=spec, memory_limit=None), root=pod(tmp_path, 100 * MIB))
    preparation = Preparation(settings)
    try:
        preparation.take_inventory()
        preparation.load()
        preparation.warm()
        session = preparation.session
        held = sum(session.engine.ledger.total(tier) for tier in (Tier.PINNED, Tier.PAGEABLE))
        on_card = session.accelerator.counters().allocated
        assert held > 0
        pod(tmp_path, 500 * MIB)
        preparation.probe()
        (node,) = preparation.prepared.record.nodes
    finally:
        preparation.close()
    still_to_come = 64 * MIB - on_card
    assert node.host_bytes == node.pinnable_bytes == GIB - 500 * MIB - RESERVE + held - still_to_come
