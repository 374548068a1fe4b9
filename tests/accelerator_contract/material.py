"""Bytes to copy, ways to copy them, and what an accelerator's tests must say of it."""

from __future__ import annotations

import mmap
import threading
from dataclasses import dataclass, field

import torch

from stowplan_agent.accelerators import Accelerator, Event

MIB = 1 << 20
ROOM = 256 * MIB
SLACK = 2 * MIB
"""A caching allocator rounds: to 512 bytes, or to what it cannot split off a larger block."""
SIZES = (1, 255, 4096, 8 * MIB + 1)
WAYS = ("pinned", "pageable", "fill")


def pattern(nbytes: int, seed: int = 0) -> torch.Tensor:
    """Host bytes on pages of their own, in which a shifted or repeated part shows: the period is a prime."""
    period = (torch.arange(251) * (2 * seed + 1) + seed) % 251
    host = torch.frombuffer(mmap.mmap(-1, nbytes), dtype=torch.uint8)
    return host.copy_(period.to(torch.uint8).repeat(-(-nbytes // 251))[:nbytes])


@dataclass
class Numbers:
    """A source of bytes. It may be held, may fail from some byte on, and notes what was asked of it."""

    tensor: torch.Tensor
    failing: int | None = None
    go: threading.Event | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    def read(self, start: int, target: torch.Tensor) -> None:
        assert target.dtype == torch.uint8 and target.dim() == 1
        self.begun.set()
        if self.go is not None:
            assert self.go.wait(60)
        self.asked.append((start, target.nbytes))
        if self.failing is not None and start + target.nbytes > self.failing:
            raise OSError("the file ended early")
        target.copy_(self.tensor[start : start + target.nbytes])


def take(accelerator: Accelerator, way: str, buffer: torch.Tensor, host: torch.Tensor, after: Event | None) -> Event:
    """Queue the host bytes into the buffer in one of the three ways; ``pinned`` wants the bytes pinned."""
    if way == "fill":
        return accelerator.fill(buffer, Numbers(host), after=after)
    return accelerator.copy(buffer, host, pinned=way == "pinned", after=after)


def back(accelerator: Accelerator, buffer: torch.Tensor) -> torch.Tensor:
    host = torch.empty(buffer.nbytes, dtype=torch.uint8)
    accelerator.read_back(host, buffer)
    return host


class Subject:
    """The accelerator under test, beyond its interface."""

    def keep_busy(self, accelerator: Accelerator) -> None:
        """Give compute something that takes long; nothing where compute is synchronous."""

    def refused(self, accelerator: Accelerator, host: torch.Tensor) -> bool:
        """Whether `pin` refuses, with the driver made to; the driver is well again afterwards."""
        raise AssertionError("each accelerator says how")
