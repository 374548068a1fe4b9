"""Which bytes of a layer are whose: the arithmetic of shares, here and nowhere else.

A layer's flat buffer is cut into one run of bytes a rank, in the order of ranks. Cuts lie at multiples of 256 bytes,
the alignment that the buffer's own blocks have, so that a share can be read from the files and copied like a buffer of
its own. Shares are as equal as that allows; of a very small layer some are empty. The planner, the host store, the
exchange and the shards all ask here, so that they agree to the byte. Pure: no torch, no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CUT: Final = 256
"""Bytes. Cuts are multiples of it."""


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes ``start`` to ``end`` of a layer's flat buffer, ``end`` excluded."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """How many bytes."""
        return self.end - self.start

    @property
    def part(self) -> slice:
        """The share as a slice of a flat buffer of bytes."""
        return slice(self.start, self.end)


def share(nbytes: int, ranks: int, rank: int) -> Share:
    """The share of one rank of a layer of ``nbytes``. Raises ValueError for a rank that there is not."""
    if nbytes < 0 or not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} has no share of {nbytes} bytes; ranks count from 0")
    cuts = -(-nbytes // CUT)
    return Share(min(nbytes, cuts * rank // ranks * CUT), min(nbytes, cuts * (rank + 1) // ranks * CUT))


def shares(nbytes: int, ranks: int) -> tuple[Share, ...]:
    """Every rank's share: together the whole layer, once."""
    return tuple(share(nbytes, ranks, rank) for rank in range(ranks))


def pieces(one: Share, count: int) -> tuple[Share, ...]:
    """A share in ``count`` runs of about one size, cut like shares: each is passed on before the next is there."""
    return tuple(Share(one.start + part.start, one.start + part.end) for part in shares(one.nbytes, count))


def piece_count(nbytes: int, ranks: int, piece_bytes: int) -> int:
    """Pieces that every rank's share of a layer is passed on in, at least 1: of about ``piece_bytes`` each."""
    return max(1, -(-largest_share(nbytes, ranks) // piece_bytes))


def largest_share(nbytes: int, ranks: int) -> int:
    """Bytes of the largest share: what a shard takes on the device of the rank that has most, and the slowest fetch."""
    return max(one.nbytes for one in shares(nbytes, ranks))
