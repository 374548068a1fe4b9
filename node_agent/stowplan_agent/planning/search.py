"""The fastest selection within limits, with its proof.

Three tools, each lossless, take turns until nothing is left to rule out: the bound of `dual` drops rows that cannot be
part of anything as fast as the best selection known; what is left is opened to all its pins and priced exactly; and
`labels` finds better selections, and in the end the best one. The proof is that no label within the budget is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.dual import Dual, sampled
from stowplan_agent.planning.frame import Frame, loosest
from stowplan_agent.planning.incumbent import DOZEN, Incumbent
from stowplan_agent.planning.labels import Labels
from stowplan_agent.planning.leaf import Leaf
from stowplan_agent.planning.merge import Merge
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import ALWAYS, HOST, LOCKED, OWN, Rows, joined, least
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Bools

TOLERANCE: Final = 1e-6
"""Times within this share of each other count as equal (PLANNING.md, small print)."""
ROUNDING: Final = 1e-9
"""Relative: bounds that differ by less are the same sum in another order."""
TOP: Final = 120
"""Rows of each component among which a better selection is looked for."""
EXTRA: Final = (0.0, 1e-4, 1e-2, 1.0)
"""Shares of a request by which prices are raised for a part of them."""
WIDTH: Final = 300
"""Labels that such a look keeps."""
ALSO: Final = 200
"""Rows that are priced together with those that are the best by their bounds."""
MOST_AT_ONCE: Final = 1000
"""Rows of a component that are opened or priced before bounds are looked at again."""
FORKS: Final = 3
"""Rows up to which a component is decided first, row by row, where the bound is not sharp."""
LONG: Final = 10_000
"""Rows of which it pays to look for a fast selection among a few first."""
MOST_PAIRS: Final = 10_000_000
"""Selections of the three largest components up to which a part is not split."""


class Search(Incumbent):
    """The search for the fastest selection of one frame."""

    def __init__(self, spaces: Sequence[Space], frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(spaces, frame)
        self.frames = (frame, *also)
        """This one, and looser ones of which `again` is asked."""
        self.wide: list[Rows] = []
        """Rows that can be part of a best selection in one of these frames, exactly priced; none if it took parts."""
        self.between = between
        self.dual = Dual(spaces, frame)
        self.leaves: list[Leaf] = []

    def run(self, known: Sequence[Rows] = ()) -> bool:
        """Find the fastest selection, and all parts of the space with something as fast; False if nothing fits.

        ``known`` is a selection to start from, one priced row a component, if one is known that may be within limits.
        """
        if not (known and self.take(known, self.alone(known))) and not self.first():
            return False
        scarce, host = self.frame.pins_scarce, self.frame.host_scarce
        pools = [space.coarse(scarce=True) if scarce else space.front(host=host) for space in self.spaces]
        loose = loosest(self.frames)
        pools = self.possible(pools, self.budget(), loose)
        few = [rows.take(sampled(self.dual, rows, c)) for c, rows in enumerate(pools)]
        self.descend(few)
        if sum(map(len, pools)) > LONG:
            self.dual.search(few, self.best)
            self._improve(few)
        self._part(self.possible(pools, self.budget(), loose))
        leaves, self.leaves = self.leaves, []
        for leaf in leaves:
            self.dual.vector = leaf.vector
            labels = leaf.labels.take(np.isfinite(self.ledger.needed(leaf.labels.columns, self.budget())))
            if len(labels):
                self.leaves.append(Leaf(leaf.pools, leaf.dual, leaf.vector, labels))
        return True

    def again(self, near: Search) -> None:
        """Find the fastest selection, given a finished search of tighter limits that was told of this frame.

        What that search left out takes longer than its best selection in all of its frames, for its reduced cost says
        so with any of their limits, or a row is there that takes no more of anything: what it kept is all there is.
        """
        self.dual.vector = near.dual.vector
        if not near.wide:
            self.run(near.chosen)
            return
        self.best, self.chosen = near.best, near.chosen
        if all(map(len, pools := self.possible(near.wide, self.budget()))):
            self._part(pools)

    def _part(self, pools: Sequence[Rows]) -> None:
        """Search a part of the space: split it where the bound is not sharp, until it is small enough to go through."""
        look = improving = True
        while True:
            if look:
                few = [rows.take(sampled(self.dual, rows, c)) for c, rows in enumerate(pools)]
                self.dual.search(few, self.best)
            pools = self.within(pools)
            if not all(map(len, pools)):
                return
            # What is best is found in the end anyway: a look that found nothing is not worth another one.
            improving = look and improving and self._improve(pools)
            if improving:
                pools = self.within(pools)
            look = any(rows.open.any() for rows in pools)
            if look:
                pools = [self.some(rows, c, self.spaces[c].opened, rows.open) for c, rows in enumerate(pools)]
            elif not all(rows.priced.all() for rows in pools):
                pools = [self.some(rows, c, self.spaces[c].priced, ~rows.priced) for c, rows in enumerate(pools)]
                pools = [self.uncovered(rows, c) for c, rows in enumerate(pools)]
            else:
                break
        self.wide, pools = pools, self.within(pools, frames=1)
        split = [c for c, rows in enumerate(pools) if 1 < len(rows) <= FORKS]
        sizes = sorted(len(self.front(rows, c)) for c, rows in enumerate(pools))
        if split and np.prod(sizes[-3:]) > MOST_PAIRS:
            self._fork(pools, max(split, key=lambda c: float(np.ptp(pools[c].bytes[:, :HOST].sum(axis=1)))))
            return
        labels = self._merge(pools)
        self.take(pools, labels)
        self.leaves.append(Leaf(pools, self.dual, self.dual.vector, labels))

    def _fork(self, pools: Sequence[Rows], component: int) -> None:
        """Search the part once with each row of one component, the cheapest first."""
        vector, rows = self.dual.vector, pools[component]
        for row in np.argsort(self.dual.reduced(rows, component), kind="stable"):
            self.dual.vector = vector
            self._part([*pools[:component], rows.take(np.array([row])), *pools[component + 1 :]])
        self.wide = []

    def budget(self) -> float:
        """The most seconds that count as equal to the best so far, and a little for rounding."""
        return (self.best + self.between) * (1 + TOLERANCE + ROUNDING) - self.between

    def within(self, pools: Sequence[Rows], frames: int | None = None) -> list[Rows]:
        """Only rows that can be part of a selection within the budget in one of so many frames."""
        if not all(map(len, pools)):
            return list(pools)
        spent = [self.dual.reduced(rows, c) for c, rows in enumerate(pools)]
        cheapest = [float(each.min()) for each in spent]
        worth = max(self.dual.worth(frame) for frame in self.frames[:frames])
        gap = self.budget() + worth - sum(cheapest)
        return [rows.take(each <= least + gap) for rows, each, least in zip(pools, spent, cheapest, strict=True)]

    def _merge(self, pools: Sequence[Rows], width: int | None = None) -> Labels:
        spent = [self.dual.reduced(rows, c) for c, rows in enumerate(pools)]
        most = self.budget()
        return Merge(self.ledger, pools, spent, most + self.dual.worth(), most).full(width=width)

    def _improve(self, pools: Sequence[Rows]) -> bool:
        """Look for a faster selection among the cheapest rows."""
        few, before = [], self.best
        for component, (space, rows) in enumerate(zip(self.spaces, pools, strict=True)):
            front = self.front(rows, component)
            few.append(self._cheap(space.opened(self._cheap(front, component)), component))
        labels = self._merge(few, WIDTH)
        labels = labels.take(np.argsort(self.ledger.seconds(labels.columns), kind="stable")[:DOZEN])
        used = [np.unique(labels.rows[:, c]) for c in range(len(pools))]
        if len(labels):
            priced = [space.priced(rows.take(index)) for space, rows, index in zip(self.spaces, few, used, strict=True)]
            self.take(priced, self._merge(priced))
        self.descend(pools)
        return self.best < before

    def _cheap(self, rows: Rows, component: int) -> Rows:
        """The cheapest rows at the prices of the limits, and at prices a little above: of many that are equally fast,
        those that take little."""
        if len(rows) <= TOP:
            return rows
        cost = self.dual.reduced(rows, component)
        held = rows.bytes[:, [ALWAYS, OWN]].sum(axis=1) + rows.bytes[:, LOCKED:].sum(axis=1)
        taken = held * self.best / max(float(held.max()), 1.0)
        orders = [least(cost + taken * extra, TOP // 8 if extra else TOP) for extra in EXTRA]
        return rows.take(np.unique(np.concatenate(orders)))

    def some(self, rows: Rows, component: int, change: Callable[[Rows], Rows], mask: Bools) -> Rows:
        """Change the rows of ``mask`` that are the best by their bounds, and no more at once than can be afforded."""
        todo = np.flatnonzero(mask)
        if not len(todo):
            return rows
        few = rows.take(todo)
        order = np.argsort(self.dual.reduced(few, component), kind="stable")
        if not rows.open[todo[0]]:
            front = undominated(self.ledger.columns(few, component)[:, self.ledger.judged])
            order = np.unique(np.concatenate([order[:ALSO], front]))
        todo = todo[order[:MOST_AT_ONCE]]
        chosen = np.zeros(len(rows), dtype=np.bool_)
        chosen[todo] = True
        if rows.open[todo[0]]:
            chosen = rows.open & np.isin(rows.shape, rows.shape[todo])
        return joined([change(rows.take(chosen)), rows.take(~chosen)])
