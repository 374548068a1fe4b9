"""A small staging ring over a stream that is a thread, and what tests do with one."""

from __future__ import annotations

import threading
from typing import Final

import torch

from accelerator_contract import Numbers
from stowplan_agent.accelerators.staged_copy import StagedCopy
from stowplan_agent.accelerators.staging import Staging
from unit.accelerators.threaded_stream import DEADLINE, Stream

PIECE: Final = 1024


def ring_over(stream: Stream, *, pieces: int = 4, threads: int = 4, pinned: bool = True) -> Staging:
    pin = stream.pin if pinned else lambda _: False
    return Staging(stream, pin=pin, unpin=stream.unpin, piece_bytes=PIECE, ring_bytes=pieces * PIECE, threads=threads)


def device(nbytes: int) -> torch.Tensor:
    return torch.zeros(nbytes, dtype=torch.uint8)


def landed(copy: StagedCopy) -> None:
    assert copy.resolve().wait(DEADLINE)


def fill(ring: Staging, destination: torch.Tensor, source: Numbers, after: threading.Event | None = None) -> StagedCopy:
    return ring.queue(StagedCopy(destination, source, after=after))
