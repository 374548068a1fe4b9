"""How much slower compute runs while a copy runs: a row of matrix products, alone and beside a long copy.

Both take memory bandwidth of the device. The factor decides most plans: at 1 a layer that is streamed behind another
one's compute costs nothing (PLANNING.md, small print), so it is measured, never assumed.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.host import HostBuffer

REPEATS: Final = 3
LEAST_SIDE: Final = 64
LARGEST_SIDE: Final = 4096
"""Sides of the square matrices; as large as the copied buffer allows."""
MATRICES: Final = 2
PRODUCTS: Final = 4
FAST_PRODUCTS: Final = 16
"""Products in bfloat16, on a device that has units for them: what layers are made of, and shorter."""


def measure_contention(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer) -> float:
    """How much slower compute runs while ``host`` is copied to ``device``, at least 1.

    Takes as many bytes of device memory again as ``device`` has, at most.
    """
    side = math.isqrt(device.nbytes // (MATRICES * 4)) // LEAST_SIDE * LEAST_SIDE
    side = max(LEAST_SIDE, min(LARGEST_SIDE, side))
    products, dtype = FAST_PRODUCTS, torch.bfloat16
    if accelerator.device.type != "cuda":
        side, products, dtype = LEAST_SIDE, PRODUCTS, torch.float32
    with torch.no_grad(), accelerator.running():
        matrix = torch.ones(side, side, device=accelerator.device, dtype=dtype)
        result = torch.empty_like(matrix)
        torch.mm(matrix, matrix, out=result)
        alone = min(_products(accelerator, matrix, result, products, None)[0] for _ in range(REPEATS))
        beside, copying = min(_products(accelerator, matrix, result, products, (device, host)) for _ in range(REPEATS))
    return slowdown(alone, beside, copying)


def slowdown(alone: float, beside: float, copying: float) -> float:
    """The factor f by which compute slows while a copy runs, from seconds of the same work alone and beside a copy.

    While the copy runs (``copying`` seconds, or all of ``beside`` if it lasts longer) work is done at 1/f of its speed,
    afterwards at full speed: alone = overlap / f + (beside - overlap).
    """
    overlap = min(copying, beside)
    done_beside = alone - (beside - overlap)
    return max(1.0, overlap / done_beside) if done_beside > 0 else 1.0


def _products(
    accelerator: Accelerator,
    matrix: torch.Tensor,
    result: torch.Tensor,
    products: int,
    copied: tuple[torch.Tensor, HostBuffer] | None,
) -> tuple[float, float]:
    """Seconds of a row of matrix products, and of the copy beside them (0 without one)."""
    accelerator.synchronize()
    before = accelerator.record()
    copy: Event | None = None
    if copied is not None:
        device, host = copied
        copy = accelerator.copy(device, host.tensor, pinned=host.pinned, after=before)
    start = accelerator.record()  # queueing the copy takes the host some 0.05 ms, which compute did not
    for _ in range(products):
        torch.mm(matrix, matrix, out=result)
    end = accelerator.record()
    if copy is not None:
        accelerator.wait(copy)
    accelerator.synchronize()
    return accelerator.elapsed(start, end), 0.0 if copy is None else accelerator.elapsed(before, copy)
