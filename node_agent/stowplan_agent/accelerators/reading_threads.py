"""How many threads read at once: memory and the page cache are faster than any one of them."""

from __future__ import annotations

import os
from typing import Final

MOST: Final = 16
"""Reading from the page cache gains nothing beyond (one H200 host: 5, 33, 40 and 38 GB/s with 1, 8, 16 and 32)."""


def reading_threads() -> int:
    """One for each CPU that this process may use, at most `MOST`."""
    return min(MOST, len(os.sched_getaffinity(0)))
