"""What the engine may rely on, whichever accelerator it runs on: one set of tests, inherited by each accelerator's own.

A subclass gives the fixture ``accelerator`` (256 MiB of room, no other user) and says how its device is kept busy and
how its driver is made to refuse. Bytes are compared, never seconds.
"""

from __future__ import annotations

from accelerator_contract.copies import CopyContract
from accelerator_contract.ends import EndContract
from accelerator_contract.material import MIB, ROOM, Numbers, back, pattern
from accelerator_contract.memory import MemoryContract

__all__ = ["MIB", "ROOM", "AcceleratorContract", "Numbers", "back", "pattern"]


class AcceleratorContract(MemoryContract, CopyContract, EndContract):
    """All of it."""
