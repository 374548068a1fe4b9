"""What an emulated card is: sizes and rates, from which its seconds are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PEER_RATE: Final = 2.8e9
"""Bytes a second: seven times the emulated host link, as NVLink is on an H200 (388 to 55 GB/s)."""


@dataclass(frozen=True)
class EmulatedCard:
    """The card that is emulated: bytes, bytes a second, floating-point operations a second, seconds.

    The defaults make a tiny model behave as a 14B one on a data-centre card: a pass over a denoiser of tens of MiB
    takes about as long as streaming a half of it.
    """

    capacity_bytes: int
    outside_bytes: int = 1 << 20
    """Taken by the context, and by other processes."""
    pinned_rate: float = 4e8
    pageable_rate: float = 1e8
    latency: float = 2e-5
    contention: float = 1.05
    flops: float = 4e10
    memory_rate: float = 2e10
    peer_rate: float = PEER_RATE
    """Bytes a second from another rank's card, where there are several ranks."""
