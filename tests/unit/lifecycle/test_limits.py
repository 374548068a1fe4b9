"""Reserves of device and host memory, as written down or by default."""

from __future__ import annotations

import pytest

from stowplan_agent.calibration import Machine
from stowplan_agent.inventory import host_reserve
from stowplan_agent.lifecycle.limits import device_reserve

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
