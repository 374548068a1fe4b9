"""The model's own collectives: the process group of all ranks, opened, given up from any point, and opened anew.

A rank that fails in the middle of a request leaves the others in a collective, and no library tells them. So every
collective has a time limit: over gloo (emulated cards) it then fails, and the ranks meet again; NCCL ends the process,
and the supervisor all of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from stowplan_agent.ranks.seat import Seat

DIMENSIONS: Final = ("ring", "ulysses")
"""Of the mesh, as diffusers names them."""


class Collectives:
    """One rank's end of the process group. Use it from one thread at a time."""

    def __init__(self, seat: Seat, device: str, *, patience: float) -> None:
        """``device``: ``cuda`` or ``cpu``, where the tensors lie. ``patience``: seconds that a collective may take."""
        self._store = FileStore(seat.rendezvous, seat.ranks)
        self._seat = seat
        self._device = device
        self._limit = timedelta(seconds=patience)
        self._opened = 0

    def open(self, ring: int, ulysses: int) -> DeviceMesh:
        """The ranks as a mesh of these sides. All ranks come; raises what torch raises where one does not."""
        seat, self._opened = self._seat, self._opened + 1
        backend = "cpu:gloo" if self._device == "cpu" else "cpu:gloo,cuda:nccl"  # diffusers looks for the colon form
        store = PrefixStore(f"group {self._opened}", self._store)
        dist.init_process_group(backend, store=store, rank=seat.rank, world_size=seat.ranks, timeout=self._limit)
        return init_device_mesh(self._device, (ring, ulysses), mesh_dim_names=DIMENSIONS)

    def give_up(self) -> None:
        """Leave the group, from wherever this rank is; for good, or until it is opened again."""
        if dist.is_initialized():
            dist.destroy_process_group()
