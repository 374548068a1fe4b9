"""A share of a source, as a source of its own: what a rank reads of a layer."""

from __future__ import annotations

import torch

from stowplan_agent.accelerators.interface import ByteSource


class Part:
    """A run of a source's bytes, as a source of its own."""

    def __init__(self, source: ByteSource, start: int, nbytes: int) -> None:
        """``start`` is a multiple of the alignment of the layout, as every share's is."""
        self._source = source
        self._start = start
        self._nbytes = nbytes

    @property
    def nbytes(self) -> int:
        """How many bytes the run has."""
        return self._nbytes

    def read(self, start: int, target: torch.Tensor) -> None:
        """Of the whole source, from where the run begins."""
        self._source.read(self._start + start, target)
