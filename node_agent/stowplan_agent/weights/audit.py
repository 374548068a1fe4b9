"""The ledger against the kernel: are the host bytes that we say we hold really there?

The device's side is exact (`Ledger.check`). On the host the kernel counts pages, and every page of a host copy has been
written, so the two accounts agree within one page a buffer.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.host import HostBuffer, whole_pages
from stowplan_agent.weights.ledger import Ledger, LedgerError, Tier

PAGEMAP: Final = Path("/proc/self/pagemap")
ENTRY: Final = 8
"""Bytes of a page's entry (admin-guide/mm/pagemap of the kernel's documentation)."""
HELD: Final = 62
"""Bits 62 and 63 of an entry: swapped out, and present. Pageable copies may have been swapped out."""
BATCH: Final = 1 << 20
"""Entries that are read at once: those of 4 GiB."""


def host_buffers(components: Iterable[ManagedComponent]) -> list[HostBuffer]:
    """Every host copy that these components have."""
    units = (unit for component in components for unit in component.units())
    return [unit.host for unit in units if unit.host is not None]


def check_host(ledger: Ledger, buffers: Collection[HostBuffer]) -> None:
    """Compare the ledger's host bytes with the buffers that exist, and with the pages under them.

    Raises `LedgerError` when ledger and buffers differ by a byte, or pages are missing under a buffer.
    """
    for tier, pinned in ((Tier.PINNED, True), (Tier.PAGEABLE, False)):
        own = sum(buffer.counted.nbytes for buffer in buffers if buffer.pinned is pinned)
        if own != ledger.total(tier):
            raise LedgerError(f"the ledger says {ledger.total(tier)} {tier} bytes, and host copies have {own}")
    there = sum(held_bytes(buffer.counted.data_ptr(), buffer.counted.nbytes) for buffer in buffers)
    expected = sum(whole_pages(buffer.counted.nbytes) for buffer in buffers)
    if there != expected:
        raise LedgerError(f"{expected} bytes of host copies are on the ledger, and the kernel holds {there} of them")


def held_bytes(address: int, nbytes: int) -> int:
    """Bytes of the pages from ``address`` on that are in memory or swap.

    Where the kernel keeps its page table to itself (some sandboxes do), all are taken to be.
    """
    pages = whole_pages(nbytes) // mmap.PAGESIZE
    try:
        with PAGEMAP.open("rb", buffering=0) as table:
            table.seek(address // mmap.PAGESIZE * ENTRY)
            held = 0
            for start in range(0, pages, BATCH):
                entries = np.frombuffer(table.read(min(BATCH, pages - start) * ENTRY), dtype=np.uint64)
                held += int(np.count_nonzero(entries >> np.uint64(HELD)))
    except OSError:
        return whole_pages(nbytes)
    return held * mmap.PAGESIZE
