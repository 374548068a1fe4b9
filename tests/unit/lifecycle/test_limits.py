"""Reserves of device and host memory, as written down or by default."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.calibration import Machine
from stowplan_agent.inventory import HostLimits
from stowplan_agent.inventory.cgroups import Cap
from stowplan_agent.lifecycle.limits import device_reserve, host_room, rewrite_room
from stowplan_agent.ranks.alone import Alone
from stowplan_api.host_reserve import host_reserve

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("limit", "stated", "reserve"),
    [(64 * GIB, None, 64 * GIB // 20), (GIB, None, 256 * MIB), (64 * GIB, 5, 5), (64 * GIB, 0, 0)],
)
def test_host_reserve(limit: int, stated: int | None, reserve: int) -> None:
    assert host_reserve(limit, stated) == reserve


@pytest.mark.parametrize(
    ("capacity", "stated", "reserve"),
    [(80 * GIB, None, -(-80 * GIB // 50)), (8 * GIB, None, 512 * MIB), (8 * GIB, 7, 7), (8 * GIB, 0, 0)],
)
def test_device_reserve(capacity: int, stated: int | None, reserve: int) -> None:
    assert device_reserve(Machine("node", "Card", capacity, 0, stated, 0, 0)) == reserve


class Staging(EmulatedAccelerator):
    """A card that takes host memory for bytes on their way, and has some of it already."""

    def __init__(self, name: str, need: int, locked: int) -> None:
        super().__init__(EmulatedCard(10 * MIB, 0))
        self.name, self.staging_need_bytes, self._locked = name, need, locked

    @property
    def staging_bytes(self) -> int:
        return self._locked


def settings(reserve: int | None, root: Path = Path("/")) -> Any:
    residency = SimpleNamespace(host_reserve=reserve)
    spec = SimpleNamespace(residency=residency)
    return SimpleNamespace(spec=spec, root=root, memory_limit=GIB, company=Alone())


@pytest.mark.parametrize(
    ("name", "need", "locked", "used", "held", "room"),
    [
        ("cuda", 256 * MIB, 0, 100 * MIB, 0, (1024 - 64 - 100 - 256) * MIB),
        ("cuda", 256 * MIB, 256 * MIB, 356 * MIB, 0, (1024 - 64 - 356) * MIB),  # the limit counts it by now
        ("cuda", 256 * MIB, 0, 700 * MIB, 600 * MIB, (1024 - 64 - 100 - 256) * MIB),  # given back, and to come again
        ("cuda", 256 * MIB, 0, 900 * MIB, 0, 0),
        ("emulated", 0, 0, 100 * MIB, 0, (1024 - 64 - 100 - 10) * MIB),
    ],
)
def test_host_copies_have_what_is_free_less_all_that_the_accelerator_will_take(
    name: str, need: int, locked: int, used: int, held: int, room: int
) -> None:
    card = Staging(name, need, locked)
    limits = HostLimits((Cap("the pod's memory limit", GIB, used),))
    assert host_room(settings(64 * MIB), card, limits, held_bytes=held) == room
    card.close()


def test_a_rewrite_leaves_room_for_the_staging_memory(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(f"RssAnon: {100 * 1024} kB\n")
    for need, room in ((256 * MIB, (1024 - 100 - 256) * MIB), (GIB, 0)):
        card = Staging("cuda", need, 0)
        assert rewrite_room(settings(None, tmp_path), card) == room
        card.close()
