"""Measuring the host link with the engine's own copies: rates pinned and pageable, latency, contention. In seconds.

A pinned copy of n bytes takes latency + n / rate, so two sizes give both. A pageable one is read by several threads at
once, which only a long row of copies keeps busy (`steady_rate`). What copies do to compute is another question
(`contention`). Everything is given back, whatever happens.
"""

from __future__ import annotations

from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.staging_memory import PIECE_BYTES, fault_in
from stowplan_agent.calibration.contention import measure_contention
from stowplan_agent.calibration.steady_rate import copy_seconds, seconds_in_a_row
from stowplan_agent.weights.host import HostBuffer, take_arena
from stowplan_agent.weights.ledger import Ledger
from stowplan_api.record import Link

LARGEST: Final = 512 << 20
"""Bytes of the larger copy: of the order of real layers (Wan 14B 670 MiB, T5-XXL 368, FLUX 324), and two staging rings,
so that what happens once a copy weighs as much as it does in a pass."""
LEAST: Final = 1 << 16
REPEATS: Final = 3


def measure_link(accelerator: Accelerator, *, budget_bytes: int) -> Link:
    """The link of this device. Takes at most ``budget_bytes`` of device and of host memory, and gives them back.

    Raises torch.OutOfMemoryError and OSError where not even that is there.
    """
    nbytes = max(LEAST, min(LARGEST, budget_bytes // 2))
    ledger = Ledger()
    device = accelerator.allocate(nbytes)
    try:
        (host,) = take_arena("link", [nbytes], accelerator, ledger)
        try:
            return _measure(accelerator, device, host)
        finally:
            host.drop()
    finally:
        accelerator.free(device)


def _measure(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer) -> Link:
    # As layers are when they are loaded: every page there, and touched by the threads that will read it. Pages that one
    # thread touched all lie in the memory next to its processor, from which the others read more slowly.
    fault_in(host.tensor.split(PIECE_BYTES))
    seconds = seconds_in_a_row(accelerator, device, host)
    host.set_pinned(True)
    pinned, latency = _rate(accelerator, device, host)
    pageable = device.nbytes / max(seconds - latency, 1e-9)
    return Link(
        pinned_bytes_per_second=pinned if host.pinned else pageable,
        pageable_bytes_per_second=pageable,
        latency_seconds=latency,
        contention=measure_contention(accelerator, device, host),
    )


def _rate(accelerator: Accelerator, device: torch.Tensor, host: HostBuffer) -> tuple[float, float]:
    """Bytes a second, and seconds of latency: the best of a few, as the link's limit is what repeats."""
    large, small = device.nbytes, device.nbytes // 8
    slow = min(copy_seconds(accelerator, device, host, large) for _ in range(REPEATS))
    fast = min(copy_seconds(accelerator, device, host, small) for _ in range(REPEATS))
    rate = (large - small) / max(slow - fast, 1e-9)
    return rate, max(0.0, fast - small / rate)
