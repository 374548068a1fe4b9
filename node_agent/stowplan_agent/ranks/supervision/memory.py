"""Whether the kernel has killed something of this container for want of memory: cgroup v2 ``memory.events``, v1
``memory.oom_control``; both count as ``oom_kill``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_FILES: Final = ("sys/fs/cgroup/memory.events", "sys/fs/cgroup/memory/memory.oom_control")


def out_of_memory_kills(root: Path = Path("/")) -> int:
    """How many there were so far; 0 where the kernel does not say. ``root`` is ``/``, or a tree like it in a test."""
    for name in _FILES:
        try:
            text = (root / name).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            continue
        if match := re.search(r"^oom_kill (\d+)$", text, re.MULTILINE):
            return int(match[1])
    return 0
