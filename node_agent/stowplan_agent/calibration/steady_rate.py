"""How long a copy takes while the link is busy: of a long row of copies, the second half.

The first copies of a row pay for what a pass over layers pays once: threads that wake, a staging ring that opens and
fills (on one H200 a copy of 256 MiB from pageable memory alone makes 32 GB/s, layers in a row 52). What is wanted is
what each layer of a pass takes, so a row is watched copy by copy and its first half is left out. A row lasts a fraction
of a second on any link, and takes no more memory than one copy.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.host import HostBuffer

ROW_SECONDS: Final = 0.4
ROWS: Final = 3
LEAST_ROW: Final = 4
LONGEST_ROW: Final = 64
"""Copies of a row: as many as `ROW_SECONDS` have room for, within these."""


def seconds_in_a_row(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer) -> float:
    """Seconds of one copy of ``device.nbytes`` among others: the middle one of a few rows.

    Not the best one: a row is long enough to have the small delays that a pass has, too.
    """
    for _ in range(2):  # the first opens the staging ring, which takes longer than many copies
        alone = copy_seconds(accelerator, device, host, device.nbytes)
    length = row_length(alone)
    return statistics.median(steady(_row(accelerator, device, host, length)) for _ in range(ROWS))


def row_length(alone: float) -> int:
    """Copies of a row, of which one by itself takes ``alone`` seconds."""
    return max(LEAST_ROW, min(LONGEST_ROW, math.ceil(ROW_SECONDS / max(alone, 1e-9))))


def steady(ends: Sequence[float]) -> float:
    """Seconds a copy in the second half of a row, from the moments (seconds) at which its copies ended."""
    filled = len(ends) // 2
    return max(ends[-1] - ends[filled - 1], 1e-9) / (len(ends) - filled)


def copy_seconds(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer, nbytes: int) -> float:
    """Seconds of one copy of the first ``nbytes``, nothing else being on its way."""
    return _row(accelerator, device[:nbytes], host, 1)[0]


def _row(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer, length: int) -> list[float]:
    """Seconds from the beginning to the end of each copy of a row."""
    accelerator.synchronize()
    start = accelerator.record()
    source = host.tensor[: device.nbytes]
    ends = [accelerator.copy(device, source, pinned=host.pinned, after=start) for _ in range(length)]
    accelerator.wait(ends[-1])
    accelerator.synchronize()
    return [accelerator.elapsed(start, end) for end in ends]
