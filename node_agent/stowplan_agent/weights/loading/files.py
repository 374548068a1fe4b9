"""Which files tensors are mapped from, and where in them: bytes are then read with large reads, not by page faults.

Copying out of a mapping faults in every page and unmaps it afterwards (one H200 host, 16 threads, from the page cache
to the device: 37 GB/s, and 45 with preadv), and a cold file is read in windows of the kernel's choice. The kernel says
what is mapped where. A mapping of which any page was written to is no longer what the file says: its tensors are copied
from memory instead, and so is whatever cannot be told apart for certain.
"""

from __future__ import annotations

import os
import sys
import weakref
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import torch

from stowplan_agent.weights.loading.mappings import MAPS, SMAPS, FileMapping, file_mappings, unwritten_mappings
from stowplan_agent.weights.loading.written_pages import PAGEMAP, own_pages


class _OpenFile:
    """A file that is open for as long as somebody holds this object."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.descriptor = os.open(name, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor).atexit = False


class FileBytes(NamedTuple):
    """A stretch of an open file, which stays open with it."""

    file: _OpenFile
    offset: int

    @property
    def identity(self) -> tuple[int, ...]:
        """Which bytes these are, the same for every process that sees the file: device, inode, its size and time of
        change (a file may be written anew in its place), and where in it."""
        status = os.fstat(self.file.descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, self.offset

    def read(self, start: int, target: torch.Tensor) -> None:
        """Fill a flat uint8 host tensor from ``start`` bytes on. Raises OSError where the file ends before."""
        sys.audit("stowplan.read", self.file.name)
        memory = target.numpy().data
        done = 0
        while done < len(memory):
            try:
                count = os.preadv(self.file.descriptor, [memory[done:]], self.offset + start + done)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.file.name) from error
            if not count:
                raise OSError(f"{self.file.name}: the file ends before byte {self.offset + start + len(memory)}")
            done += count


class MappedFiles:
    """The files that are mapped into this process at this moment."""

    def __init__(self, maps: Path = MAPS, pagemap: Path = PAGEMAP, smaps: Path = SMAPS) -> None:
        """Asks the kernel what is mapped, once. Where it does not say, nothing is found.

        Whether a mapping was written to is asked of ``pagemap`` as it is first found, or, of a kernel that does not
        answer there, of ``smaps`` now.
        """
        self._pagemap = pagemap
        self._mappings = list(file_mappings(maps))
        self._asks = bool(self._mappings) and self._written(self._mappings[0]) is not None
        if not self._asks:
            self._mappings = list(unwritten_mappings(smaps))
        self._starts = [mapping.start for mapping in self._mappings]
        self._open: dict[tuple[str, str, int], _OpenFile | None] = {}
        self._usable: dict[int, _OpenFile | None] = {}

    def find(self, memory: torch.Tensor) -> FileBytes | None:
        """Where in a file the bytes of a flat host tensor are; None where no file has all of them for certain."""
        return self.find_at(memory.data_ptr(), memory.nbytes)

    def find_at(self, address: int, nbytes: int) -> FileBytes | None:
        """As `find`, for the memory at an address."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address + nbytes > self._mappings[index].end:
            return None
        mapping = self._mappings[index]
        if mapping.start not in self._usable:
            self._usable[mapping.start] = self._file_of(mapping)
        file = self._usable[mapping.start]
        return None if file is None else FileBytes(file, mapping.offset + address - mapping.start)

    def _file_of(self, mapping: FileMapping) -> _OpenFile | None:
        if self._asks and self._written(mapping) is not False:
            return None
        # One name may have been two files, each mapped in its time.
        key = (mapping.name, mapping.device, mapping.inode)
        if key not in self._open:
            self._open[key] = _opened(mapping)
        return self._open[key]

    def _written(self, mapping: FileMapping) -> bool | None:
        try:
            return own_pages(mapping.start, mapping.end, self._pagemap)
        except OSError:
            return None


def _opened(mapping: FileMapping) -> _OpenFile | None:
    try:
        file = _OpenFile(mapping.name)
    except OSError:
        return None
    status = os.fstat(file.descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    # The name may be another file's by now, and a stacked file system may name a file that it does not show.
    return file if (device, status.st_ino) == (mapping.device, mapping.inode) else None
