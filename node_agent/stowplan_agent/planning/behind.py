"""What the loads behind a component cost.

With the prefetched components given (`chains`), the loads that hide behind a component are a function of its entry:
`Behind` adds them to the seconds of each row. The pinned bytes of what is prefetched may stay open, as those of an
Offload do (`elastic`): for one row, the seconds that a load leaves exposed are a convex function of its seconds, a few
straight lines, and the seconds of a load are a straight line of its pinned bytes. So at each price of a locked byte the
best load is at a turn of these lines, and the row holds, for each price, what is best at it. The prices at which a turn
becomes the best one are among ``prices`` (`branches`), which is what makes the columns exact (`labels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from stowplan_agent.planning.chains import Chain, exposed
from stowplan_agent.planning.lane_load import LaneLoad
from stowplan_agent.planning.table import Floats

FOREVER: Final = 1e12
"""Seconds in which any load hides."""


@dataclass(frozen=True, slots=True)
class Load:
    """The loads of one prefetched component whose seconds are chosen together, on ranks that all load alike."""

    component: str
    slow: float
    """Seconds of a load with the fewest pins."""
    fast: float
    """Seconds of a load with the most pins."""
    rate: float
    """Bytes that a node locks for a load that takes a second less."""
    stays: tuple[tuple[float, int], ...]
    """Share, and stay of the component that it hides behind."""
    others: tuple[tuple[float, float], ...]
    """Share, and seconds of the link that are free whatever is chosen."""

    def seconds(self, idle: Floats, prices: Floats) -> Floats:
        """Row by price: exposed seconds plus the price of locked bytes, with the best load at that price.

        ``idle`` are the seconds in which the link is free, row by stay.
        """
        slack = self._slack(idle)
        best = np.full((len(idle), len(prices)), np.inf)
        for turn in (np.full(len(idle), self.slow), np.full(len(idle), self.fast), *(one for _, one in slack)):
            load = np.clip(turn, self.fast, self.slow)
            cost = sum((share * np.maximum(load - one, 0.0) for share, one in slack), np.zeros(len(idle)))
            np.minimum(best, cost[:, None] + (self.rate * (self.slow - load))[:, None] * prices, out=best)
        return best

    def pieces(self, idle: Sequence[Floats]) -> list[tuple[float, float]]:
        """Seconds that each locked byte saves and how many bytes, the steepest piece first, for one row of ``idle``."""
        slack = [(share, float(one[0])) for share, one in self._slack(idle[0])]
        turns = {self.slow, self.fast, *(min(max(one, self.fast), self.slow) for _, one in slack)}
        found = []
        for high, low in pairwise(sorted(turns, reverse=True)):
            worth = sum(share for share, one in slack if one <= low)
            found.append((worth / self.rate, self.rate * (high - low)))
        return found

    def _slack(self, idle: Floats) -> list[tuple[float, Floats]]:
        rows = [(share, idle[:, stay]) for share, stay in self.stays]
        return rows + [(share, np.full(len(idle), free)) for share, free in self.others]


@dataclass(frozen=True, slots=True)
class Behind:
    """All loads behind one component: open ones, and chains of loads that are given."""

    lanes: tuple[tuple[int, tuple[int, ...]], ...]
    """Link class and ranks of each lane; ranks of a lane have equal links and load alike."""
    loads: tuple[Load, ...] = ()
    """Where there is one lane."""
    chains: tuple[Chain, ...] = ()
    """Of given loads, where there are several lanes."""
    given: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """Seconds of a load, by component and lane."""
    apart: tuple[LaneLoad, ...] = ()
    """Open ones where there are several lanes, each of them a link class."""

    @property
    def nothing(self) -> bool:
        """Whether nothing is behind the component."""
        return not (self.loads or self.chains or self.apart)

    def seconds(self, ends: Floats, busy: Sequence[Floats], prices: Floats) -> Floats:
        """What is added to each row, row by price: ``ends`` and ``busy`` (a lane) are seconds, row by stay."""
        total = np.zeros((len(ends), len(prices)))
        for load in self.loads:
            total += load.seconds(ends - busy[0], prices)
        for each in self.apart:
            total += each.seconds([ends - one for one in busy], prices)
        given = dict(self.given)
        for chain in self.chains:
            links = [one[:, chain.stay] for one in busy]
            total += chain.share * exposed(chain, ends[:, chain.stay], links, given)[:, None]
        return total

    def least(self, prices: Floats) -> Floats:
        """By price: what is added to any row at least, whatever its pins."""
        loads: tuple[Load | LaneLoad, ...] = (*self.loads, *self.apart)
        stays = (stay for load in loads for _, stay in load.stays)
        none = np.full((1, 1 + max(stays, default=0)), FOREVER)
        total = sum((load.seconds(none, prices)[0] for load in self.loads), np.zeros(len(prices)))
        return total + sum((each.seconds([none] * len(self.lanes), prices)[0] for each in self.apart), 0.0)
