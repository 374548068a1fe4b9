"""Locking host memory with the CUDA driver, and leaving no error behind when it refuses.

cudaHostRegister locks memory that is already there, of exact size; torch's pinned allocator rounds up to powers of two
and never gives back. A refused call leaves its error pending in the runtime, where the next call would find it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import torch

PORTABLE: Final = 1
"""cudaHostRegisterPortable: pinned for every context of the process."""
SUCCESS: Final = 0


def register(buffer: torch.Tensor, device: torch.device) -> bool:
    """Lock a host buffer. False, with nothing changed, where the driver refuses."""
    try:
        status = int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), buffer.nbytes, PORTABLE))
    except RuntimeError:
        status = -1
    if status != SUCCESS:
        _clear_error(device)
    return status == SUCCESS


def unregister(buffer: torch.Tensor, device: torch.device) -> None:
    """Unlock a buffer that no copy reads. One that is not locked is left alone."""
    if int(torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr())) != SUCCESS:
        _clear_error(device)


def _clear_error(device: torch.device) -> None:
    # torch does not bind cudaGetLastError. It calls it after each kernel launch, though, and so takes the blame of the
    # driver call that failed; streams and synchronisation only return errors of their own.
    with suppress(RuntimeError):
        torch.ones(1, device=device)
