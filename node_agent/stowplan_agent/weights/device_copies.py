"""Loading several units to the device at once: the driver takes memory for the next while bytes are on their way.

Order is fixed, so that every failure can be brought about again: memory for a unit, its copy, memory for the next.
Whoever calls undoes what a failure leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stowplan_agent.weights.unit import Unit

ROOMS_AHEAD: Final = 0
"""Units, beyond the next to be loaded, whose device memory is taken before the bytes of that one are asked for. Memory
for 40 layers of 670 MiB takes 86 ms (one H200, expandable segments) and bytes 16 ms a layer: it is there in time."""


def load_all(units: Sequence[Unit]) -> None:
    """Have these units on the device, compute waiting for them. Raises torch.OutOfMemoryError, and as reading does."""
    for number, unit in enumerate(units):
        for coming in units[number : number + 1 + ROOMS_AHEAD]:
            coming.reserve()
        unit.load()
    for unit in units:
        unit.arrive()
