"""The host store of a node: rank 0 makes the memory, every rank maps it, all fill it together, and then nobody writes.

A rank fills its own share of every buffer: work is even whatever the sizes are, and on a machine with several memories
a share lies next to the card that fetches it. Every method but `abandon` is a meeting of all ranks, in which one that
fails says so: all fail then, with that rank's message, and none waits. Buffers whose bytes are not the same on all
ranks are each rank's own, as they are without this store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.interface import ByteSource
from stowplan_agent.ranks.circle import MOST_DESCRIPTORS, Circle
from stowplan_agent.ranks.errors import RanksError
from stowplan_agent.ranks.parts import Part
from stowplan_agent.ranks.shares import Share, share
from stowplan_agent.ranks.store.mapping import make_file, map_file, seal
from stowplan_agent.ranks.store.shared_buffer import SharedBuffer
from stowplan_agent.weights.host import HostBuffer, take_arena
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.filling import fill_all

Buffer = HostBuffer | SharedBuffer
"""A rank's own copy, or its hold of one that all ranks share."""


class NodeStore:
    """One rank's end. ``patience``: seconds that all ranks have to fill what they have taken."""

    def __init__(
        self, circle: Circle, accelerator: Accelerator, ledger: Ledger, *, swaps: bool = True, patience: float = 900.0
    ) -> None:
        """``swaps``: ranks fetch shares and swap them; else each fetches, and so locks, everything itself."""
        self._circle = circle
        self._accelerator = accelerator
        self._ledger = ledger
        self._swaps = swaps
        self._patience = patience
        self._files: dict[SharedBuffer, int] = {}
        """Of rank 0, from `take` to `settle`: what is to be sealed."""

    def take(self, owner: str, sizes: Sequence[int], contents: Sequence[str]) -> list[Buffer]:
        """Buffers of these numbers of bytes (each above 0), pageable, untouched. All ranks meet, in one order.

        ``contents`` says of each what bytes it will have: a digest, or the files and places that they come from.
        Raises `RanksError` where ranks ask for other sizes or one has no room; nothing is taken then, on any rank.
        """
        found: list[Buffer] = []
        try:
            for first in range(0, len(sizes), MOST_DESCRIPTORS):
                some = slice(first, first + MOST_DESCRIPTORS)
                found += self._take(owner, sizes[some], contents[some])
        except BaseException:
            self.abandon(found)
            raise
        return found

    def fill(self, jobs: Sequence[tuple[ByteSource, Buffer]], filled: Callable[[int], None] = lambda _: None) -> None:
        """Fill buffers of `take` from their sources, every rank its share; ``filled`` as in `fill_all`, of this rank.

        Returns once every rank has: then all bytes are there. Raises `RanksError` if one could not.
        """
        parts = []
        for source, buffer in jobs:
            own = _part(source.nbytes, buffer)
            parts.append((Part(source, own.start, own.nbytes), buffer.tensor[own.part]))
        self._all_do("fill the host store", lambda: fill_all(parts, filled))

    def read_back(self, jobs: Sequence[tuple[torch.Tensor, Buffer]]) -> None:
        """Fill buffers of `take` from what lies on every rank's device, each rank its share. All ranks meet.

        A layer lies there whole, or the rank's share of it alone.
        """

        def read() -> None:
            for device, buffer in jobs:
                own = _part(buffer.tensor.nbytes, buffer)
                lies_whole = device.nbytes == buffer.tensor.nbytes
                self._accelerator.read_back(buffer.tensor[own.part], device[own.part] if lies_whole else device)

        self._all_do("read layers back", read)

    def settle(self, buffers: Sequence[Buffer]) -> None:
        """Let nobody write to them any more: all that was to be written is, on every rank. All ranks meet."""

        def close() -> None:
            for buffer in buffers:
                if isinstance(buffer, SharedBuffer):
                    buffer.seal()
                    if buffer in self._files:
                        seal(self._files[buffer])
                    self._close(buffer)

        self._all_do("settle the host store", close)

    def abandon(self, buffers: Sequence[Buffer]) -> None:
        """Give up buffers that were not settled; for this rank alone, as `drop` is."""
        for buffer in buffers:
            self._close(buffer)
            buffer.drop()

    def _take(self, owner: str, sizes: Sequence[int], contents: Sequence[str]) -> list[Buffer]:
        with ExitStack() as closing:
            files, error = self._make_files(sizes)
            asked = [[nbytes, content] for nbytes, content in zip(sizes, contents, strict=True)]
            met = self._circle.meet(f"{owner}: take", [error, asked], files)
            files = list(met[0].descriptors)
            for file in files:
                closing.callback(os.close, file)
            _agree(owner, [contribution.value for contribution in met])
            found: list[Buffer] = []

            def map_all() -> None:
                for index, (file, nbytes) in enumerate(zip(files, sizes, strict=True)):
                    same = len({contribution.value[1][index][1] for contribution in met}) == 1
                    found.extend(self._map(owner, file, nbytes) if same else self._own(owner, nbytes))

            try:
                self._all_do("map the host store", map_all)
            except BaseException:
                self.abandon(found)
                raise
            return found

    def _make_files(self, sizes: Sequence[int]) -> tuple[list[int], str | None]:
        """Of rank 0: the files, or why there are none."""
        files: list[int] = []
        if self._circle.rank == 0:
            try:
                for nbytes in sizes:
                    files.append(make_file(nbytes))
            except OSError as error:
                for file in files:
                    os.close(file)
                return [], str(error)
        return files, None

    def _map(self, owner: str, file: int, nbytes: int) -> list[Buffer]:
        own = share(nbytes, self._circle.ranks, self._circle.rank)
        locks = own if self._swaps else Share(0, nbytes)
        buffer = SharedBuffer(owner, map_file(file, nbytes), own, self._accelerator, self._ledger, locks=locks)
        if self._circle.rank == 0:
            self._files[buffer] = os.dup(file)
        return [buffer]

    def _own(self, owner: str, nbytes: int) -> list[HostBuffer]:
        return take_arena(owner, [nbytes], self._accelerator, self._ledger)

    def _all_do(self, name: str, work: Callable[[], object]) -> None:
        self._circle.all_do(name, work, patience=self._patience)

    def _close(self, buffer: Buffer) -> None:
        if isinstance(buffer, SharedBuffer) and (descriptor := self._files.pop(buffer, None)) is not None:
            os.close(descriptor)


def _part(nbytes: int, buffer: Buffer) -> Share:
    """What this rank fills: all of what is its own."""
    return buffer.own if isinstance(buffer, SharedBuffer) else Share(0, nbytes)


def _agree(owner: str, values: Sequence[Any]) -> None:
    for rank, (error, asked) in enumerate(values):
        if error is not None:
            raise RanksError(f"{owner}: rank {rank} cannot make the host store: {error}")
        sizes, first = [nbytes for nbytes, _ in asked], [nbytes for nbytes, _ in values[0][1]]
        if sizes != first:
            raise RanksError(
                f"{owner}: rank {rank} asks for {sum(sizes)} bytes of host copies and rank 0 for {sum(first)}"
            )
