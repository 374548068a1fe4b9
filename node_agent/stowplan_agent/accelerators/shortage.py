"""What is an out-of-memory error, and the numbers in it.

torch's error is a sentence: "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.53 GiB of which 1.25 GiB is
free. ...". The emulated card words it alike, so that one reader serves both. Numbers are rounded by torch to two
decimals; what is short is therefore a lower bound. Under a ceiling (`set_per_process_memory_fraction`) the card may
have room and the process none: then the sentence goes on with "1.00 GiB allowed; Of the allocated memory ...".

What does not go through torch's allocator says it in other errors: the driver, where a kernel or a stream wants memory,
and the libraries, for their handles and workspaces.
"""

from __future__ import annotations

import re
from typing import Final

import torch

_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE: Final = r"([\d.]+) (bytes|[KMG]iB)"
_SENTENCE: Final = re.compile(rf"ried to allocate {_SIZE}.*?of which {_SIZE} is free", re.S)
_CEILING: Final = re.compile(
    rf"{_SIZE} allowed; Of the allocated memory {_SIZE} is allocated by PyTorch.*?and {_SIZE} is reserved by PyTorch",
    re.S,
)

_OUTSIDE: Final = re.compile(r"CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|CU[A-Z]+_(STATUS_)?ALLOC_FAILED")


def is_shortage(error: BaseException) -> bool:
    """Whether device memory was short, for torch's allocator or for what lies outside it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUTSIDE.search(str(error)) is not None


def wording(asked: int, capacity: int, free: int, product: str) -> str:
    """An error of an emulated card in torch's words."""
    return (
        f"{product} out of memory. Tried to allocate {_rounded(asked)}. The card has a total capacity of "
        f"{_rounded(capacity)} of which {_rounded(max(free, 0))} is free."
    )


def shortage(error: torch.OutOfMemoryError) -> int | None:
    """Bytes that were short for the allocation that failed, in torch's rounding; None where it gave no numbers."""
    text = str(error)
    match = _SENTENCE.search(text)
    if match is None:
        return None
    asked, room = _bytes(*match.group(1, 2)), _bytes(*match.group(3, 4))
    if ceiling := _CEILING.search(text):
        allowed, allocated, cached = (_bytes(*ceiling.group(place, place + 1)) for place in (1, 3, 5))
        room = min(room, allowed - allocated - cached)
    return max(1, asked - room)


def first_sentence(error: torch.OutOfMemoryError) -> str:
    """The numbers of torch's message without its advice, which does not apply to a managed process."""
    text = " ".join(str(error).split()) or "out of device memory"
    return text.split(". Including non-PyTorch", 1)[0].split(" If reserved but unallocated", 1)[0].rstrip(".")


def _rounded(nbytes: int) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= _UNITS[unit]:
            return f"{nbytes / _UNITS[unit]:.2f} {unit}"
    return f"{nbytes} bytes"


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
