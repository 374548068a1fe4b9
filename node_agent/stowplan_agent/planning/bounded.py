"""The best selection known beside the bound of `dual`: what is within reach of it, and cheap looks for a better one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.dual import Dual
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.incumbent import DOZEN, Incumbent
from stowplan_agent.planning.labels import Labels
from stowplan_agent.planning.merge import Merge
from stowplan_agent.planning.rows import ALWAYS, LOCKED, OWN, Rows, distinct, least
from stowplan_agent.planning.space import Space

TOLERANCE: Final = 1e-6
"""Times within this share of each other count as equal (PLANNING.md, small print)."""
ROUNDING: Final = 1e-9
"""Relative: bounds that differ by less are the same sum in another order."""
TOP: Final = 120
"""Rows of each component among which a better selection is looked for."""
MANY: Final = 8 * TOP
"""Rows of each component of which those are looked for that are nowhere worse than another one."""
EXTRA: Final = (0.0, 1e-4, 1e-2, 1.0)
"""Shares of a request by which prices are raised for a part of them."""
WIDTH: Final = 300
"""Labels that such a look keeps."""


class Bounded(Incumbent):
    """An incumbent with prices of the limits."""

    def __init__(self, spaces: Sequence[Space], frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(spaces, frame)
        self.frames = (frame, *also)
        """This one, and looser ones that a later search starts from here for."""
        self.between = between
        self.known = np.inf
        """Seconds of a selection in another part of the space: slower ones are of no use."""
        self.only_faster = False
        """Whether selections that are as fast as the best so far are of no use either."""
        self.dual = Dual(spaces, frame)

    def goal(self) -> float:
        """Seconds of the fastest selection so far, wherever it is."""
        return min(self.best, self.known)

    def budget(self) -> float:
        """The most seconds that are of use beside the best so far."""
        return self.of_use(self.goal())

    def of_use(self, known: float) -> float:
        """The most seconds that are of use beside ``known`` ones: those that count as equal, and a little for rounding;
        fewer where only what is faster counts."""
        more = -ROUNDING if self.only_faster else TOLERANCE + ROUNDING
        return (known + self.between) * (1 + more) - self.between

    def listed(self) -> list[Rows]:
        """The rows of each component; of many only those that may be part of a selection within limits and budget."""
        if self.frame.pins_scarce:
            return [space.coarse(scarce=True) for space in self.spaces]
        least = [space.least for space in self.spaces]
        most, held = self.budget() - sum(one[0] for one in least), sum(one[1] for one in least)
        rooms = np.max([frame.room for frame in self.frames], axis=0).tolist()
        return [
            space.quick(most + seconds, room - held + always)
            for space, (seconds, always), room in zip(self.spaces, least, rooms, strict=True)
        ]

    def within(self, pools: Sequence[Rows], frames: int | None = None) -> list[Rows]:
        """Only rows that can be part of a selection within the budget in one of so many frames."""
        if not all(map(len, pools)):
            return list(pools)
        spent = self.dual.all_reduced(pools)
        cheapest = [float(each.min()) for each in spent]
        worth = max(self.dual.worth(frame) for frame in self.frames[:frames])
        gap = self.budget() + worth - sum(cheapest)
        return [rows.take(each <= least + gap) for rows, each, least in zip(pools, spent, cheapest, strict=True)]

    def sharp(self, pools: Sequence[Rows]) -> bool:
        """Whether the bound says that nothing is faster than the best so far: then it need not be made better."""
        bound = sum(float(each.min()) for each in self.dual.all_reduced(pools)) - self.dual.worth()
        return self.goal() - bound <= ROUNDING * (self.goal() + self.between)

    def merging(self, pools: Sequence[Rows]) -> Merge:
        """These rows, ready to be put together to selections within limits and the budget."""
        most = self.budget()
        return Merge(self.ledger, pools, self.dual.all_reduced(pools), most + self.dual.worth(), most)

    def merge(self, pools: Sequence[Rows], width: int | None = None) -> Labels:
        """Selections of these rows within limits and the budget."""
        return self.merging(pools).full(width=width)

    def improve(self, pools: Sequence[Rows]) -> bool:
        """Look for a faster selection among the cheapest rows."""
        few, before = [], self.best
        for component, (space, rows) in enumerate(zip(self.spaces, pools, strict=True)):
            front = self.front(self._cheap(rows, component, MANY), component)
            few.append(self._cheap(space.opened(self._cheap(front, component)), component))
        labels = self.merge(few, WIDTH)
        labels = labels.take(np.argsort(self.ledger.seconds(labels.columns), kind="stable")[:DOZEN])
        used = [distinct(labels.rows[:, c]) for c in range(len(pools))]
        if len(labels):
            priced = [space.priced(rows.take(index)) for space, rows, index in zip(self.spaces, few, used, strict=True)]
            self.take(priced, self.merge(priced))
        if self.chosen:
            self.descend(pools)
        return self.best < before

    def _cheap(self, rows: Rows, component: int, top: int = TOP) -> Rows:
        """The cheapest rows at the prices of the limits, and at prices a little above: of many that are equally fast,
        those that take little."""
        if len(rows) <= top:
            return rows
        cost = self.dual.reduced(rows, component)
        held = rows.bytes[:, ALWAYS] + rows.bytes[:, OWN] + rows.bytes[:, LOCKED:].sum(axis=1)
        taken = held * self.goal() / max(float(held.max()), 1.0)
        orders = [least(cost + taken * extra, top // 8 if extra else top) for extra in EXTRA]
        return rows.take(distinct(np.concatenate(orders)))
