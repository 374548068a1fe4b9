"""What this process may use of the machine: device and host memory, each with its reserve. No weight is touched."""

from __future__ import annotations

from typing import Final

from stowplan_agent import inventory
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.calibration import Machine
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.planning.limits import LEAST_RESERVE, MEASURED_DIVISOR

HOST_RESERVE_SHARE: Final = 20
HOST_RESERVE_LEAST: Final = 256 << 20
"""Host memory left to the process: a twentieth of the limit or 256 MiB, whichever is more, unless the spec says."""
NODE: Final = "node"
"""The one node of a record with one rank."""


def host_reserve(limit_bytes: int, stated: int | None) -> int:
    """Bytes of host memory that plans leave free under a limit: what the spec states, or the default."""
    if stated is not None:
        return stated
    return max(limit_bytes // HOST_RESERVE_SHARE, HOST_RESERVE_LEAST)


def device_reserve(machine: Machine) -> int:
    """Bytes of device memory that a plan of a measured record leaves free: PLANNING.md, small print."""
    if machine.reserve_bytes is not None:
        return machine.reserve_bytes
    return max(-(-machine.capacity_bytes // MEASURED_DIVISOR), LEAST_RESERVE)


def read_host(settings: StartSettings) -> inventory.HostLimits:
    """The limits of host memory that bind this process, and what is free under them now."""
    return inventory.read_host_limits(
        settings.root, explicit=settings.memory_limit, explicit_name="the pod's memory limit"
    )


def read_machine(settings: StartSettings, accelerator: Accelerator, found: inventory.Inventory) -> Machine:
    """The limits of this pod. Raises `InventoryError` where no placement can fit them, before anything is loaded."""
    host = read_host(settings)
    emulated = accelerator.name == "emulated"
    capacity, outside = accelerator.capacity_bytes(), accelerator.outside_bytes()
    inventory.check_need(
        inventory.predict_need(found),
        device_bytes=max(0, capacity - outside),
        device=accelerator.product,
        host=host,
        device_is_host=emulated,
    )
    residency = settings.spec.residency
    device_in_host = capacity if emulated else 0
    reserve = host_reserve(host.tightest.limit, residency.host_reserve)
    room = max(0, host.headroom - reserve - device_in_host)
    return Machine(
        node=NODE,
        device=accelerator.product,
        capacity_bytes=capacity,
        outside_bytes=outside,
        reserve_bytes=residency.device_reserve,
        pinnable_bytes=room,
        host_bytes=room,
    )
