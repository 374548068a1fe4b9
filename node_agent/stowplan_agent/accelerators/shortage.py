"""The numbers in an out-of-memory error.

torch's error is a sentence: "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.53 GiB of which 1.25 GiB is
free. ...". The emulated card words it alike, so that one reader serves both. Numbers are rounded by torch to two
decimals; what is short is therefore a lower bound.
"""

from __future__ import annotations

import re
from typing import Final

import torch

_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SENTENCE: Final = re.compile(r"ried to allocate ([\d.]+) (bytes|[KMG]iB).*?of which ([\d.]+) (bytes|[KMG]iB) is free", re.S)


def wording(asked: int, capacity: int, free: int, product: str) -> str:
    """An error of an emulated card in torch's words."""
    return (
        f"{product} out of memory. Tried to allocate {_rounded(asked)}. The card has a total capacity of "
        f"{_rounded(capacity)} of which {_rounded(max(free, 0))} is free."
    )


def shortage(error: torch.OutOfMemoryError) -> int | None:
    """Bytes that were short for the allocation that failed, to torch's rounding; None where the error has no numbers."""
    match = _SENTENCE.search(str(error))
    if match is None:
        return None
    asked, asked_unit, free, free_unit = match.groups()
    return max(1, round(float(asked) * _UNITS[asked_unit]) - round(float(free) * _UNITS[free_unit]))


def first_sentence(error: torch.OutOfMemoryError) -> str:
    """The numbers of torch's message without its advice, which does not apply to a managed process."""
    text = " ".join(str(error).split()) or "out of device memory"
    return text.split(". Including non-PyTorch", 1)[0].split(" If reserved but unallocated", 1)[0].rstrip(".")


def _rounded(nbytes: int) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= _UNITS[unit]:
            return f"{nbytes / _UNITS[unit]:.2f} {unit}"
    return f"{nbytes} bytes"
