"""What this process may use of the machine: device and host memory, each with its reserve. No weight is touched.

Host memory that the accelerator takes for bytes on their way counts whether or not a plan has pageable copies: every
load passes through it. It is taken off here, and nowhere else; the planner's host bytes are host copies alone.
"""

from __future__ import annotations

from typing import Final

from stowplan_agent import inventory
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.calibration import Machine
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shared_device import refuse_shared
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.planning.limits import GIB, LEAST_RESERVE, MEASURED_DIVISOR
from stowplan_api.contract import PlacementReason

NODE: Final = "node"
"""The one node of a record with one rank."""


def device_reserve(machine: Machine) -> int:
    """Bytes of device memory that a plan of a measured record leaves free: PLANNING.md, small print."""
    if machine.reserve_bytes is not None:
        return machine.reserve_bytes
    return max(-(-machine.capacity_bytes // MEASURED_DIVISOR), LEAST_RESERVE)


def probe_margin(machine: Machine) -> int:
    """Bytes of device memory beside what a shape is estimated to need, or it is not probed: RUNTIME.md, Probe."""
    if machine.reserve_bytes is not None:
        return machine.reserve_bytes
    return max(-(-machine.capacity_bytes // MEASURED_DIVISOR), GIB)


def read_host(settings: StartSettings) -> inventory.HostLimits:
    """The limits of host memory that bind this process, and what is free under them now."""
    return inventory.read_host_limits(
        settings.root, explicit=settings.memory_limit, explicit_name="the pod's memory limit"
    )


def host_room(
    settings: StartSettings, accelerator: Accelerator, host: inventory.HostLimits, *, held_bytes: int = 0
) -> int:
    """Bytes of host copies that plans may have under ``host``, of which ``held_bytes`` are there already.

    That is what is free, less the reserve, and less what the accelerator has not taken yet: its staging memory, and an
    emulated card its memory.
    """
    still_to_come = _staging_to_come(accelerator)
    if _is_host_memory(accelerator):
        still_to_come += settings.company.ranks * (accelerator.capacity_bytes() - accelerator.counters().allocated)
    budget = host.pin_budget(settings.spec.residency.host_reserve) + held_bytes
    return max(0, budget - still_to_come)


def rewrite_room(settings: StartSettings, accelerator: Accelerator) -> int:
    """Bytes of host memory that a rewrite of weights may take now, the reserve included."""
    return max(0, read_host(settings).headroom - _staging_to_come(accelerator))


def _staging_to_come(accelerator: Accelerator) -> int:
    return max(0, accelerator.staging_need_bytes - accelerator.staging_bytes)


def _is_host_memory(accelerator: Accelerator) -> bool:
    return accelerator.name == "emulated"


def read_machine(settings: StartSettings, accelerator: Accelerator, found: inventory.Inventory) -> Machine:
    """The limits of this pod. Raises `InventoryError` where no placement can fit them, before anything is loaded, and
    `StartError` where the device is shared and the spec does not say how much of it this pod may take.
    """
    refuse_shared(settings.spec, accelerator.facts, settings.environment)
    host = read_host(settings)
    capacity, outside = accelerator.capacity_bytes(), accelerator.outside_bytes()
    inventory.check_need(
        inventory.predict_need(found),
        device_bytes=max(0, capacity - outside),
        device=accelerator.product,
        host=host,
        process_bytes=_staging_to_come(accelerator),
        device_is_host=_is_host_memory(accelerator),
    )
    room = host_room(settings, accelerator, host)
    return Machine(
        node=NODE,
        device=accelerator.product,
        capacity_bytes=capacity,
        outside_bytes=outside,
        reserve_bytes=settings.spec.residency.device_reserve,
        pinnable_bytes=room,
        host_bytes=room,
    )


def too_small(shortfall: Shortfall, model: str, machine: Machine) -> StartError:
    """The error of a phase that ran out of device memory: what was short, and what would be enough."""
    message = shortfall.sentence(model, machine, reserve_bytes=device_reserve(machine))
    return StartError(PlacementReason.OUT_OF_MEMORY, message)
