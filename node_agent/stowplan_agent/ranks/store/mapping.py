"""Memory that several processes map and nobody can shrink: a file without a name, one a buffer.

One file a buffer, and not one arena, because the kernel then counts who still has it: its pages go with the last
mapping of the last rank, in whatever order ranks let go, and also when all of them are killed. Such a file is on no
mount: ``/dev/shm`` need not have room for it, and nothing is left behind (memfd_create(2)). Its pages are of 2 MiB
where the node has reserved such and they are free, or where the kernel gives them to shared memory
(``/sys/kernel/mm/transparent_hugepage/shmem_enabled``), else of 4 KiB: slower to lock, and as fast to copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stowplan_agent.weights.host import HUGE_PAGE, MADV_DOFORK, whole_pages

F_SEAL_FUTURE_WRITE: Final = 0x10  # linux/fcntl.h; Python has the other seals
PROT_READ, PROT_WRITE = mmap.PROT_READ, mmap.PROT_WRITE
_POOL: Final = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
_FAILED: Final = ctypes.c_void_p(-1).value
_address, _length, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype, _libc.mmap.argtypes = _address, [_address, _length, _int, _int, _int, ctypes.c_long]
_libc.munmap.argtypes = [_address, _length]
_libc.madvise.argtypes = [_address, _length, _int]
_libc.mprotect.argtypes = [_address, _length, _int]

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


def make_file(nbytes: int, *, pool: Path = _POOL) -> int:
    """An open file of ``nbytes``, to the page, that can neither grow nor shrink: no mapping of it loses its pages.

    Raises OSError where the kernel has no room for it.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    if nbytes >= HUGE_PAGE and _free_huge_pages(pool) * HUGE_PAGE >= nbytes:
        with contextlib.suppress(OSError):
            return _sized(flags | os.MFD_HUGETLB | os.MFD_HUGE_2MB, -(-nbytes // HUGE_PAGE) * HUGE_PAGE)
    return _sized(flags, whole_pages(nbytes))


@dataclass(frozen=True, eq=False)
class Mapping:
    """A file's bytes in this process. ``length``: of whole pages, of whichever size the file has."""

    memory: Bytes
    length: int


def map_file(descriptor: int, nbytes: int) -> Mapping:
    """The first ``nbytes`` of such a file, to be read and written, until the last view of ``memory`` is gone.

    Not through Python's own mapping, which keeps a descriptor open for each. Raises OSError where the kernel refuses.
    """
    length = os.fstat(descriptor).st_size
    address = _libc.mmap(None, length, PROT_READ | PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"no room to map {length} bytes of shared weights: {os.strerror(number)}")
    # Hints, refused without harm: fewer pages to fault in and to lock; no copy for a child that runs a program.
    for advice in ([mmap.MADV_HUGEPAGE] if length >= HUGE_PAGE else []) + [mmap.MADV_DONTFORK]:
        _libc.madvise(address, length, advice)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    weakref.finalize(memory, _unmap, os.getpid(), address, length).atexit = False
    return Mapping(np.frombuffer(memoryview(memory), dtype=np.uint8), length)


def seal(descriptor: int) -> None:
    """Let nobody map the file for writing any more. Mappings that there are keep their rights until `protect`."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)


def inherit(mapping: Mapping) -> None:
    """Let child processes have a mapping of `map_file` too, from here on."""
    _libc.madvise(mapping.memory.ctypes.data, mapping.length, MADV_DOFORK)


def protect(mapping: Mapping, *, writable: bool) -> None:
    """Let this process write to a mapping of `map_file`, or not: a write then ends the process, not the weights."""
    rights = PROT_READ | PROT_WRITE if writable else PROT_READ
    if _libc.mprotect(mapping.memory.ctypes.data, mapping.length, rights):
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel keeps the rights of {mapping.length} bytes ({os.strerror(number)})")


def _unmap(owner: int, address: int, length: int) -> None:
    if os.getpid() == owner:  # a child has the objects, not the memory
        _libc.munmap(address, length)


def _sized(flags: int, nbytes: int) -> int:
    descriptor = os.memfd_create("stowplan-weights", flags)
    try:
        os.ftruncate(descriptor, nbytes)
        if flags & os.MFD_HUGETLB:
            # Taken now: a page that the pod's limit does not allow would end the process when it is first touched.
            os.posix_fallocate(descriptor, 0, nbytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno.ENOMEM:
            raise OSError(error.errno, f"no host memory for {nbytes} bytes of shared weights") from error
        raise
    return descriptor


def _free_huge_pages(pool: Path) -> int:
    try:
        return int(pool.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
