"""Whether a mapping of a file has pages of its own: one that was written to is no longer what the file says.

The kernel's page table is asked (PAGEMAP_SCAN, Linux 6.7; admin-guide/mm/pagemap of its documentation), which takes
0.1 ms for a checkpoint of 26 GiB that nobody has read. Writing its list of all mappings with their counts
(``/proc/self/smaps``) takes 20 to 50 ms of every load, for it walks all memory of the process.
"""

from __future__ import annotations

import fcntl
import struct
from array import array
from pathlib import Path
from typing import Final

PAGEMAP: Final = Path("/proc/self/pagemap")

# linux/fs.h: struct pm_scan_arg, twelve numbers of 64 bits; _IOWR('f', 16, struct pm_scan_arg); the categories.
_ARGUMENT: Final = struct.Struct("=12Q")
_SCAN: Final = 3 << 30 | _ARGUMENT.size << 16 | ord("f") << 8 | 16
_REGION: Final = 24
"""Bytes of struct page_region: start, end, categories."""
_IS_FILE: Final = 1 << 2
_IS_PRESENT: Final = 1 << 3
_IS_SWAPPED: Final = 1 << 4


def own_pages(start: int, end: int, pagemap: Path = PAGEMAP) -> bool:
    """Whether any page from address ``start`` on, ``end`` excluded, is there or swapped out and is not a file's.

    Raises OSError where the kernel does not say.
    """
    found = array("Q", bytes(_REGION))
    kinds = _IS_PRESENT | _IS_SWAPPED
    with pagemap.open("rb", buffering=0) as table:
        # Of the pages that are there or in swap those that are NOT a file's (inverted); the first is enough.
        asked = _ARGUMENT.pack(
            _ARGUMENT.size, 0, start, end, 0, found.buffer_info()[0], 1, 1, _IS_FILE, _IS_FILE, kinds, kinds
        )
        return int(fcntl.ioctl(table.fileno(), _SCAN, bytearray(asked))) > 0
