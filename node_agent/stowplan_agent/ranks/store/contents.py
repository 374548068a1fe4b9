"""What makes two ranks' bytes the same: their digest. A copy is shared only by ranks whose bytes are.

Ranks of one replica load the same checkpoint, but a rank may hold a part of a tensor under the name of the whole
(tensor parallelism), or have changed a weight after loading (SandAI-org/MagiCompiler#64). Names and shapes say nothing
of that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import torch

from stowplan_agent.accelerators.interface import ByteSource

PIECE: Final = 4 << 20


def digest(source: ByteSource) -> str:
    """Of all bytes of a source, about 1 GB/s: for weights that no file is known to have."""
    found = hashlib.blake2b(digest_size=16)
    piece = torch.zeros(min(PIECE, source.nbytes), dtype=torch.uint8)
    for start in range(0, source.nbytes, PIECE):
        target = piece[: min(PIECE, source.nbytes - start)]
        target.zero_()  # bytes between blocks are left as they are
        source.read(start, target)
        found.update(target.numpy().data)
    return f"{source.nbytes}:{found.hexdigest()}"


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """Of the values of tensors in host memory, in order: what lies between them does not count."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
