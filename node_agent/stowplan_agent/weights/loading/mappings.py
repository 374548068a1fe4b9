"""The kernel's own list of what is mapped into this process: which file is where in memory, and which pages are its.

Format: proc_pid_maps(5) and proc_pid_smaps(5). Where there is no such list (not Linux), nothing counts as mapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAPS: Final = Path("/proc/self/maps")
SMAPS: Final = Path("/proc/self/smaps")
IN_MEMORY: Final = ("/dev/", "/memfd:", "/SYSV")
"""Starts of names of mappings that have an inode and are memory or a device all the same."""

# Range, rights, offset, device, inode, name. One expression over the whole text: a process with a GPU has 2,000
# mappings and 50,000 lines of smaps, which line by line in Python take longer than the kernel takes to write them.
_FILE: Final = rb"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) +([1-9][0-9]*) +(/.*)\n"
_FILES: Final = re.compile(_FILE, re.MULTILINE)
_UNWRITTEN: Final = re.compile(
    _FILE + rb"(?:[A-Z](?!nonymous:).*\n)*Anonymous: +0 kB\n(?:[A-Z](?!wap:).*\n)*Swap: +0 kB$", re.MULTILINE
)
"""Files none of whose pages was written to: such a page is the process's own from then on, in memory or in swap."""


@dataclass(frozen=True, slots=True)
class FileMapping:
    """Addresses from ``start``, ``end`` excluded, are the file's bytes from ``offset`` on."""

    start: int
    end: int
    offset: int
    device: str
    """Major and minor number, in hexadecimal."""
    inode: int
    name: str

    @property
    def on_disk(self) -> bool:
        """Whether its pages can be dropped and read again: not shared memory, which has a name and no disk."""
        return not self.name.startswith(IN_MEMORY)


def file_mappings(maps: Path = MAPS) -> Iterator[FileMapping]:
    """All mappings of files, by address."""
    return _found(_FILES, maps)


def unwritten_mappings(smaps: Path = SMAPS) -> Iterator[FileMapping]:
    """Mappings of files that hold nothing but the file's own pages, by address."""
    return _found(_UNWRITTEN, smaps)


def _found(expression: re.Pattern[bytes], path: Path) -> Iterator[FileMapping]:
    try:
        text = path.read_bytes()
    except OSError:
        return
    for match in expression.finditer(text):
        start, end, offset, device, inode, name = match.groups()
        called = name.decode(errors="surrogateescape")
        yield FileMapping(int(start, 16), int(end, 16), int(offset, 16), device.decode(), int(inode), called)
