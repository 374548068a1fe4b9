"""The loads of one prefetched component over unlike links, with pins still to be chosen on each of them.

What is exposed of a load is what its slowest rank leaves exposed, and each rank's load falls in a straight line with
its pinned bytes. So for one row of the component before it, seconds and locked bytes are a linear program, and what
is best at a price a byte is one of its corners. There each rank loads as slowly as it can, as fast, just within the
time that is free before a stay, or as late behind it as another rank: these are few, and all of them are tried.

Only where a load hides behind what runs right before it and nothing else is brought in there: the ranks that wait for
a slower one would have more time for the next load. And only behind one stay, or on two links: else there are more
corners than these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stowplan_agent.planning.elastic import ALMOST, whole_bytes
from stowplan_agent.planning.table import Floats

Corner = tuple[float, float, tuple[float, ...]]
"""Locked bytes of a node, exposed seconds, and seconds of a load on each link."""


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """The loads of one component whose pins are chosen together. Tuples have one entry a link class."""

    component: str
    total: int
    slow: tuple[float, ...]
    """Seconds of a load with nothing pinned."""
    fast: tuple[float, ...]
    """Seconds of a load with all of it pinned."""
    rate: tuple[float, ...]
    """Bytes that a node locks for loads over this link that take a second less."""
    stays: tuple[tuple[float, int], ...]
    """Share, and stay of the component that it hides behind."""
    others: tuple[tuple[float, float], ...]
    """Share, and seconds in which all links are free whatever is chosen."""

    def seconds(self, idle: Sequence[Floats], prices: Floats) -> Floats:
        """Row by price: exposed seconds plus the price of locked bytes, with the best loads at that price.

        ``idle`` are the seconds in which each link is free, row by stay.
        """
        slack, rows = self._slack(idle), len(idle[0])
        best = np.full((rows, len(prices)), np.inf)
        for loads in self._corners(slack, rows):
            cost = self._exposed(slack, loads)[:, None] + self._locked(loads)[:, None] * prices
            np.minimum(best, cost, out=best)
        return best

    def pieces(self, idle: Sequence[Floats]) -> list[tuple[float, float]]:
        """Seconds that each locked byte saves and how many bytes, the steepest piece first, for one row of ``idle``."""
        return [((high[1] - low[1]) / (low[0] - high[0]), low[0] - high[0]) for high, low in pairwise(self._hull(idle))]

    def pins(self, idle: Sequence[Floats], locked: float, most: float = np.inf) -> tuple[int, ...]:
        """Pinned bytes of a rank of each link class when a node locks ``locked`` bytes, for one row of ``idle``.

        Between two corners the seconds are no more than on the straight line, so bytes are divided along it. A byte
        that belongs to a rank in part is pinned as long as the node locks no more than ``most``: over a slow link it
        could take longer than all others.
        """
        hull = self._hull(idle)
        loads = np.array(hull[0][2])
        for one, two in pairwise(hull):
            part = min(max((locked - one[0]) / (two[0] - one[0]), 0.0), 1.0)
            loads = loads + part * (np.array(two[2]) - np.array(one[2]))
        shares = [
            (slow - load) / (slow - fast) if slow > fast else 0.0
            for slow, fast, load in zip(self.slow, self.fast, loads.tolist(), strict=True)
        ]
        found = [whole_bytes(share, self.total) for share in shares]
        parts = [share * self.total - whole for share, whole in zip(shares, found, strict=True)]
        for link in sorted(range(len(parts)), key=lambda link: -parts[link]):
            more = [one + (other == link) for other, one in enumerate(found)]
            if parts[link] > ALMOST and self.locks(more) <= most + ALMOST:
                found = more
        return tuple(found)

    def locks(self, pins: Sequence[int]) -> float:
        """Bytes that a node locks for so many pinned bytes of a rank of each link class."""
        each = zip(self.slow, self.fast, self.rate, pins, strict=True)
        return sum(rate * (slow - fast) / self.total * one for slow, fast, rate, one in each if slow > fast)

    def _hull(self, idle: Sequence[Floats]) -> list[Corner]:
        """The corners of one row that something is gained by, the fewest bytes first."""
        slack, corners = self._slack(idle), list[Corner]()
        for loads in self._corners(slack, 1):
            each = tuple(float(one[0]) for one in loads)
            corners.append((float(self._locked(loads)[0]), float(self._exposed(slack, loads)[0]), each))
        hull: list[Corner] = []
        for corner in sorted(corners):
            if hull and (corner[1] >= hull[-1][1] or corner[0] <= hull[-1][0]):
                continue
            while len(hull) > 1 and _worth(hull[-1], corner) >= _worth(hull[-2], hull[-1]):
                hull.pop()
            hull.append(corner)
        return hull

    def _slack(self, idle: Sequence[Floats]) -> list[tuple[float, list[Floats]]]:
        """Share, and seconds in which each link is free, of each stay before a load."""
        rows = [(share, [each[:, stay] for each in idle]) for share, stay in self.stays]
        return rows + [(share, [np.full(len(each), free) for each in idle]) for share, free in self.others]

    def _corners(self, slack: Sequence[tuple[float, Sequence[Floats]]], rows: int) -> Iterator[list[Floats]]:
        """Seconds of a load on each link, for all rows."""
        ends = list(zip(self.slow, self.fast, strict=True))
        if len(slack) == 1:
            idle = slack[0][1]
            late = [fast - one for (_, fast), one in zip(ends, idle, strict=True)]
            least = np.maximum(np.maximum.reduce(late), 0.0)
            for more in (least, *(np.maximum(slow - one, least) for (slow, _), one in zip(ends, idle, strict=True))):
                yield [np.clip(one + more, fast, slow) for (slow, fast), one in zip(ends, idle, strict=True)]
            return
        own = [
            [np.full(rows, slow), np.full(rows, fast), *(np.clip(each[link], fast, slow) for _, each in slack)]
            for link, (slow, fast) in enumerate(ends)
        ]
        for first, second in ((0, 1), (1, 0)):
            slow, fast = ends[second]
            for load in own[first]:
                tied = [np.clip(load + each[second] - each[first], fast, slow) for _, each in slack]
                for other in (*own[second], *tied):
                    yield [load, other] if first == 0 else [other, load]

    def _exposed(self, slack: Sequence[tuple[float, Sequence[Floats]]], loads: Sequence[Floats]) -> Floats:
        total = np.zeros(len(loads[0]))
        for share, idle in slack:
            late = np.maximum.reduce([load - one for load, one in zip(loads, idle, strict=True)])
            total += share * np.maximum(late, 0.0)
        return total

    def _locked(self, loads: Sequence[Floats]) -> Floats:
        total = np.zeros(len(loads[0]))
        for load, slow, rate in zip(loads, self.slow, self.rate, strict=True):
            total += rate * (slow - load)
        return total


def _worth(one: Corner, two: Corner) -> float:
    """Seconds that a byte saves on the way from one corner to the other."""
    return (one[1] - two[1]) / (two[0] - one[0])
