"""The few calls of the CUDA driver that torch does not have: memory for other processes, and waiting for a word.

Stream memory operations (CUDA Driver API, "Stream Memory Operations") let a stream wait until a word of memory has
come to a value, and write one, both without the host. Handles of memory (``cuIpcGetMemHandle``) are 64 bytes that
another process opens in its own context; it need not have one on the other device. Addresses and streams are plain
numbers here, as torch gives them.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import torch
from cuda.bindings import driver  # type: ignore[import-untyped]

HANDLE_BYTES: Final = 64
"""CU_IPC_HANDLE_SIZE."""
WHOLE: Final = 2 << 20
"""Bytes. Of a smaller piece the driver shares the whole block, with whatever else is in it."""


class DriverError(RuntimeError):
    """A call that the driver refused."""


def _called(call: str, answer: tuple[Any, ...]) -> Any:
    status, *found = answer
    if status == driver.CUresult.CUDA_SUCCESS:
        return found[0] if found else None
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise torch.OutOfMemoryError(f"{call}: the device has no memory left")
    raise DriverError(f"the CUDA driver refused {call}: {status.name}")


def whole(nbytes: int) -> int:
    """Bytes that `take` takes for so many."""
    return -(-nbytes // WHOLE) * WHOLE


def take(nbytes: int) -> int:
    """The address of new device memory, a multiple of `WHOLE` bytes. Raises torch.OutOfMemoryError."""
    return int(_called("cuMemAlloc", driver.cuMemAlloc(whole(nbytes))))


def give_back(address: int) -> None:
    """Free what `take` took; waits for the device."""
    _called("cuMemFree", driver.cuMemFree(address))


def handle_of(address: int) -> bytes:
    """What another process needs to `open_handle` memory of `take`."""
    handle = _called("cuIpcGetMemHandle", driver.cuIpcGetMemHandle(address))
    return ctypes.string_at(int(handle.getPtr()), HANDLE_BYTES)


def open_handle(text: bytes) -> int:
    """The address, in the current context, of another process's memory; its device need not be this one.

    Raises `DriverError` where the devices have no access to each other.
    """
    handle = driver.CUipcMemHandle()
    ctypes.memmove(int(handle.getPtr()), text, HANDLE_BYTES)
    lazily = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
    return int(_called("cuIpcOpenMemHandle", driver.cuIpcOpenMemHandle(handle, lazily.value)))


def close_handle(address: int) -> None:
    """Undo `open_handle`."""
    _called("cuIpcCloseMemHandle", driver.cuIpcCloseMemHandle(address))


def expose(address: int, nbytes: int) -> int:
    """Lock host memory and give its address on the device, for `wait_for` and `write`."""
    _called("cuMemHostRegister", driver.cuMemHostRegister(address, nbytes, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
    return int(_called("cuMemHostGetDevicePointer", driver.cuMemHostGetDevicePointer(address, 0)))


def conceal(address: int) -> None:
    """Undo `expose`."""
    _called("cuMemHostUnregister", driver.cuMemHostUnregister(address))


def copy(destination: int, source: int, nbytes: int, stream: int) -> None:
    """Queue a copy between addresses of any devices."""
    _called("cuMemcpyAsync", driver.cuMemcpyAsync(destination, source, nbytes, stream))


def wait_for(stream: int, address: int, value: int) -> None:
    """Let a stream wait until a word has come to ``value``; words count on and wrap (`board.reached`)."""
    reached = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
    _called("cuStreamWaitValue32", driver.cuStreamWaitValue32(stream, address, value % (1 << 32), reached.value))


def write(stream: int, address: int, value: int) -> None:
    """Let a stream write a word, once all that is before it on the stream can be seen by everybody."""
    fenced = driver.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
    _called("cuStreamWriteValue32", driver.cuStreamWriteValue32(stream, address, value % (1 << 32), fenced.value))
