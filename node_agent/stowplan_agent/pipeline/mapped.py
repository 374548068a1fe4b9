"""Which tensors are a file, mapped into memory: the only ones whose bytes will still be there later at no cost.

torch does not say: safetensors cuts every tensor's storage out of that of the whole file, and such a cut storage no
longer knows the file's name. The kernel says, in ``/proc/self/maps``. Where there is no such file (not Linux), no
tensor counts as mapped, and whoever asks does without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import torch

NOT_FILES: Final = ("/dev/", "/memfd:", "/SYSV")
"""Starts of names of mappings that have an inode and are memory or a device all the same (proc_pid_maps(5))."""


class Span(NamedTuple):
    """Addresses in bytes, from ``start``, ``end`` excluded."""

    start: int
    end: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Span:
        """The memory of a strided tensor's whole storage: no bytes where it is not the host's."""
        storage = tensor.untyped_storage()
        try:
            start = storage.data_ptr() if tensor.device.type == "cpu" else 0
        except RuntimeError:  # a tensor that wraps others has no memory of its own
            start = 0
        return cls(start, start + storage.nbytes() if start else 0)

    def covers(self, other: Span) -> bool:
        """Whether every byte of ``other`` is in here, and there is one."""
        return self.start <= other.start < other.end <= self.end

    def meets(self, other: Span) -> bool:
        """Whether any byte is in both."""
        return max(self.start, other.start) < min(self.end, other.end)


class MappedFiles:
    """The mappings of files that tensors were found in; each is looked up once."""

    def __init__(self, maps: Path = Path("/proc/self/maps")) -> None:
        """Reads nothing yet. ``maps``: where the kernel lists this process's mappings."""
        self._maps = maps
        # With a tensor in each: it keeps the mapping, so that the addresses are not those of something else by now.
        self._known: list[tuple[Span, torch.Tensor]] = []

    def hold(self, tensor: torch.Tensor) -> bool:
        """Whether the whole storage of a tensor is one mapping's bytes."""
        if self.may_hold(tensor):
            return True
        wanted = Span.of(tensor)
        found = next((span for span in self._listed() if span.covers(wanted)), None)
        if found is not None:
            self._known.append((found, tensor.detach()))
        return found is not None

    def may_hold(self, tensor: torch.Tensor) -> bool:
        """As `hold`, among the mappings found so far."""
        wanted = Span.of(tensor)
        return any(span.covers(wanted) for span, _ in self._known)

    def _listed(self) -> list[Span]:
        try:
            lines = self._maps.read_text(errors="replace").splitlines()
        except OSError:
            return []
        return [span for line in lines if (span := _file_span(line)) is not None]


def _file_span(line: str) -> Span | None:
    """The addresses in one line of the kernel's list, if they are a file's: range, rights, offset, device, inode."""
    fields = line.split(maxsplit=5)
    if len(fields) < 6 or fields[4] == "0" or not fields[5].startswith("/") or fields[5].startswith(NOT_FILES):
        return None
    start, _, end = fields[0].partition("-")
    return Span(int(start, 16), int(end, 16))
