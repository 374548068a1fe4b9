"""What a pod with several devices gets beside one with a single one: memory that its ranks share.

How many there are, and how they share a request, is in the spec that every agent is sent. A pod of one device gets
nothing of this: a difference there would restart every pod that runs.
"""

from __future__ import annotations

from typing import Final

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.host_reserve import host_reserve
from stowplan_api.quantity import format_quantity
from stowplan_operator.kinds import Json

SHARED_MEMORY: Final = "/dev/shm"
A_RANK: Final = 64 << 20
"""Bytes a rank beside what is pinned: what runtimes give a whole container, for NCCL's buffers and torch's queues."""


def shared_memory_bytes(spec: DiffusionDeploymentSpec) -> int:
    """The bound of /dev/shm: the pod's pinned host budget, `A_RANK` for each rank, and never more than its memory.

    A runtime's own 64 MiB are too few for what the libraries of several ranks hand each other there. It is much less
    than may be pinned: the host copy of the weights lies in memory files of its own, which no mount bounds. So this is
    a bound that no start meets, and takes nothing by itself. What is written there counts against the container's
    memory limit like any other page; it is no memory on top, and beyond that limit it could not be filled.
    """
    memory = spec.resources.memory
    reserve = host_reserve(memory, spec.residency.host_reserve)
    return min(memory, max(0, memory - reserve) + spec.ranks * A_RANK)


def volumes(spec: DiffusionDeploymentSpec) -> list[Json]:
    """The volume in memory that ranks share; none for a single one."""
    if spec.ranks == 1:
        return []
    size = format_quantity(shared_memory_bytes(spec))
    return [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]


def mounts(spec: DiffusionDeploymentSpec) -> list[Json]:
    """Where it is mounted."""
    return [] if spec.ranks == 1 else [{"name": "shared-memory", "mountPath": SHARED_MEMORY}]
