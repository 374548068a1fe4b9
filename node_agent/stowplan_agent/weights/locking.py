"""How much the driver will lock: measured, for no number that the system states is the one that counts.

Limits are the driver's own, those of a container or of a hypervisor's; locking is tried on the host copies that there
are, before a plan promises the rate of pinned memory for bytes that will never be.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan_agent.weights.host import HostBuffer


def lockable_bytes(buffers: Iterable[HostBuffer], most: int) -> int | None:
    """Bytes that the driver has locked when it refuses the next of these buffers; None if it locks ``most`` or all.

    Buffers are as they were afterwards. What locking costs is paid once here: 30 to 50 GB/s on huge pages.
    """
    total = 0
    tried: list[HostBuffer] = []
    try:
        for buffer in buffers:
            if total + buffer.counted.nbytes > most:
                return None
            if not buffer.pinned:
                tried.append(buffer)
                if not _locked(buffer):
                    return total
            total += buffer.counted.nbytes
        return None
    finally:
        for buffer in tried:
            buffer.set_pinned(False)


def _locked(buffer: HostBuffer) -> bool:
    try:
        buffer.set_pinned(True)
    except Exception:  # some drivers refuse by exception, and refusing is all that is asked here
        return False
    return buffer.pinned
