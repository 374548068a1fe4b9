"""Measuring the host link with the engine's own copies: rates pinned and pageable, latency, contention. In seconds.

A pinned copy of n bytes takes latency + n / rate, so two sizes give both. A pageable one is read by several threads at
once, which a row of copies keeps busy and a single copy does not: its rate is that of one more copy in a row.
Contention is how much longer a matrix product takes while a long copy runs beside it.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.weights.host import HostBuffer, take_arena
from stowplan_agent.weights.ledger import Ledger
from stowplan_api.record import Link

LARGEST: Final = 256 << 20
"""Bytes of the larger copy: long enough that the rate of a PCIe 5 link (55 GB/s) is that of real layers."""
REPEATS: Final = 3
ROW: Final = 8
"""Pageable copies behind one another. On one H200 a copy of 256 MiB alone makes 32 GB/s, layers in a row 52."""
LEAST_SIDE: Final = 64
LARGEST_SIDE: Final = 4096
"""Sides of the square matrices whose product is timed beside a copy; as large as the budget allows."""
MATRICES: Final = 2
PRODUCTS: Final = 4
FAST_PRODUCTS: Final = 16
"""Products in bfloat16, on a device that has units for them: what layers are made of, and shorter."""


def measure_link(accelerator: Accelerator, *, budget_bytes: int) -> Link:
    """The link of this device. Takes at most ``budget_bytes`` of device and of host memory, and gives them back."""
    nbytes = max(1 << 16, min(LARGEST, budget_bytes // 2))
    ledger = Ledger()
    device = accelerator.allocate(nbytes)
    (host,) = take_arena("link", [nbytes], accelerator, ledger)
    try:
        host.tensor.zero_()  # touch every page: the first copy must not pay for faults
        seconds = _seconds_in_a_row(accelerator, device, host)
        host.set_pinned(True)
        pinned, latency = _rate(accelerator, device, host)
        pageable = nbytes / max(seconds - latency, 1e-9)
        pinned = pinned if host.pinned else pageable
        contention = _contention(accelerator, device, host, nbytes)
    finally:
        host.drop()
        accelerator.free(device)
    return Link(
        pinned_bytes_per_second=pinned,
        pageable_bytes_per_second=pageable,
        latency_seconds=latency,
        contention=contention,
    )


def _rate(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer) -> tuple[float, float]:
    """Bytes a second, and seconds of latency: the best of a few, as the link's limit is what repeats."""
    large, small = device.nbytes, device.nbytes // 8
    slow = min(_copy_seconds(accelerator, device, host, large) for _ in range(REPEATS))
    fast = min(_copy_seconds(accelerator, device, host, small) for _ in range(REPEATS))
    rate = (large - small) / max(slow - fast, 1e-9)
    return rate, max(0.0, fast - small / rate)


def _seconds_in_a_row(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer) -> float:
    """Seconds that one copy more in a row adds, the best of a few."""
    one = min(_copy_seconds(accelerator, device, host, device.nbytes) for _ in range(REPEATS))
    row = min(_copy_seconds(accelerator, device, host, device.nbytes, ROW) for _ in range(REPEATS))
    return max(row - one, 1e-9) / (ROW - 1)


def _copy_seconds(
    accelerator: Accelerator, device: torch.Tensor, host: HostBuffer, nbytes: int, copies: int = 1
) -> float:
    accelerator.synchronize()
    start = end = accelerator.record()
    for _ in range(copies):
        end = accelerator.copy(device[:nbytes], host.tensor[:nbytes], pinned=host.pinned, after=start)
    accelerator.wait(end)
    accelerator.synchronize()
    return accelerator.elapsed(start, end)


def _contention(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer, budget: int) -> float:
    """How much slower compute runs while a copy runs, at least 1."""
    side = max(LEAST_SIDE, min(LARGEST_SIDE, math.isqrt(budget // (MATRICES * 4)) // LEAST_SIDE * LEAST_SIDE))
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
