"""What each rank copies over: its host link, and the links to its peers where ranks swap (PLANNING.md, section 6).

Ranks of one node that all have access to one another run the same layers at the same time, so they have one host copy:
each fetches its share over its own link and gets the rest from its peers. Then they keep step. A layer is there once
the slowest rank has fetched its share, so that all of them copy at the pace of the slowest: the largest latency and
contention, the smallest rates. Everywhere else a rank is on its own, and none of this changes a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stowplan_agent.ranks.shares import shares
from stowplan_api.record import CalibrationRecord

Bytes = TypeVar("Bytes", float, npt.NDArray[np.float64])
"""Of one entry, or of many."""


@dataclass(frozen=True, slots=True)
class RankLink:
    """The links of one rank. With ``ranks`` at 1 there is a host link only, as measured."""

    latency_seconds: float
    pinned_bytes_per_second: float
    pageable_bytes_per_second: float
    contention: float
    ranks: int = 1
    """Ranks that a layer's bytes are shared out among."""
    peer_bytes_per_second: float = 0.0

    def fetch_seconds(self, nbytes: int, *, pinned: bool) -> float:
        """Seconds in which a streamed layer keeps the host link busy: latency, and a share of its bytes."""
        return self.latency_seconds + nbytes / (self.pinned_stream_rate if pinned else self.pageable_stream_rate)

    def swap_seconds(self, nbytes: int) -> float:
        """Seconds in which a streamed or sharded layer keeps the peer link busy: what the other ranks have of it."""
        return nbytes * self.seconds_a_swapped_byte

    def load_seconds(self, pinned: Bytes, pageable: Bytes) -> Bytes:
        """Seconds to bring in what is not always on the device, one long copy at each rate.

        It comes whole over the rank's own link. Of one host copy for all ranks a rank has locked only its share.
        """
        own = pinned / self.ranks
        return own / self.pinned_bytes_per_second + (pageable + (pinned - own)) / self.pageable_bytes_per_second

    @property
    def pinned_stream_rate(self) -> float:
        """Bytes of a pinned layer that all ranks together fetch in a second."""
        return self.ranks * self.pinned_bytes_per_second

    @property
    def pageable_stream_rate(self) -> float:
        """The same of a pageable one."""
        return self.ranks * self.pageable_bytes_per_second

    @property
    def seconds_a_swapped_byte(self) -> float:
        """Seconds of the peer link that a byte of a layer takes; 0 where there are no peers."""
        return (self.ranks - 1) / self.ranks / self.peer_bytes_per_second if self.ranks > 1 else 0.0


def have_peers(record: CalibrationRecord) -> bool:
    """Whether the ranks share one host copy and swap: several of one node, each with access to its peers."""
    ranks = record.ranks
    return len(ranks) > 1 and len({rank.node for rank in ranks}) == 1 and all(r.peer_bytes_per_second for r in ranks)


def links_of(record: CalibrationRecord) -> list[RankLink]:
    """The links of each rank."""
    links = [rank.link for rank in record.ranks]
    if not have_peers(record):
        return [
            RankLink(one.latency_seconds, one.pinned_bytes_per_second, one.pageable_bytes_per_second, one.contention)
            for one in links
        ]
    slowest = RankLink(
        latency_seconds=max(one.latency_seconds for one in links),
        pinned_bytes_per_second=min(one.pinned_bytes_per_second for one in links),
        pageable_bytes_per_second=min(one.pageable_bytes_per_second for one in links),
        contention=max(one.contention for one in links),
        ranks=len(links),
        peer_bytes_per_second=min(rank.peer_bytes_per_second for rank in record.ranks),
    )
    return [slowest] * len(links)


@lru_cache(maxsize=4096)
def share_sizes(nbytes: int, ranks: int) -> tuple[int, ...]:
    """Bytes of each rank's share."""
    return tuple(one.nbytes for one in shares(nbytes, ranks))
