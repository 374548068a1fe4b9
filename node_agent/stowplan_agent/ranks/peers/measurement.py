"""How fast a rank gets bytes from its peers, with all ranks at it at once, as they are when a layer is put together."""

from __future__ import annotations

from typing import Final

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import NoPeerAccess
from stowplan_agent.ranks.peers.interface import PeerLink

LARGEST: Final = 256 << 20
REPEATS: Final = 8


def measure_peer_rate(accelerator: Accelerator, link: PeerLink, circle: Circle, *, budget_bytes: int) -> float:
    """Bytes a second into this rank, for ``peerBytesPerSecond`` of the record; 0 where there is no peer access.

    Takes at most ``budget_bytes`` of device memory, gives it back, and takes a small part of a second. All ranks meet,
    with the same budget. Raises torch.OutOfMemoryError where not even that is there.
    """
    nbytes = max(1, min(LARGEST, budget_bytes // 2))
    give, take = link.allocate(nbytes), link.allocate(nbytes)
    try:
        try:
            regions = link.introduce("peer rate", [give])
        except NoPeerAccess:
            return 0.0
        source = regions[(link.rank + 1) % link.ranks][0]

        def pulls(count: int) -> float:
            accelerator.synchronize()
            circle.meet("peer rate: now")
            start = accelerator.record()
            for _ in range(count):
                link.pull(take, source, 0, turn=0, after=start)
            accelerator.wait(link.swapped(0, start))
            end = accelerator.record()
            accelerator.synchronize()
            return accelerator.elapsed(start, end)

        pulls(1)  # the first pull of a pair of devices opens the way
        rate = REPEATS * nbytes / max(pulls(REPEATS), 1e-9)
        link.part("peer rate", regions)
        return rate
    finally:
        link.free(give)
        link.free(take)
