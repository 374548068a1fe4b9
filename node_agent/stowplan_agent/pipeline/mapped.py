"""Which tensors are a file, mapped into memory: the only ones whose bytes will still be there later at no cost.

torch does not say: safetensors cuts every tensor's storage out of that of the whole file, and such a cut storage no
longer knows the file's name. The kernel says. Where it does not (not Linux), no tensor counts as mapped, and whoever
asks does without.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from stowplan_agent.weights.loading.mappings import MAPS, file_mappings


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

    def __init__(self, maps: Path = MAPS) -> None:
        """Reads nothing yet. ``maps``: where the kernel lists this process's mappings."""
        self._maps = maps
        # With a tensor in each: it keeps the mapping, so that the addresses are not those of something else by now.
        self._known: list[tuple[Span, torch.Tensor]] = []

    def hold(self, tensor: torch.Tensor) -> bool:
        """Whether the whole storage of a tensor is one mapping's bytes."""
        if self.may_hold(tensor):
            return True
        wanted = Span.of(tensor)
        listed = (Span(mapping.start, mapping.end) for mapping in file_mappings(self._maps) if mapping.on_disk)
        found = next((span for span in listed if span.covers(wanted)), None)
        if found is not None:
            self._known.append((found, tensor.detach()))
        return found is not None

    def may_hold(self, tensor: torch.Tensor) -> bool:
        """As `hold`, among the mappings found so far."""
        wanted = Span.of(tensor)
        return any(span.covers(wanted) for span, _ in self._known)
