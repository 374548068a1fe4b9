"""The fastest selection within limits, with its proof.

Three tools, each lossless, take turns until nothing is left to rule out: the bound of `dual` drops rows that cannot be
part of anything as fast as the best selection known; what is left is opened to all its pins and priced exactly; and
`labels` finds better selections, and in the end the best one. The proof is that no label within the budget is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np

from stowplan_agent.planning.bounded import Bounded
from stowplan_agent.planning.dual import sampled
from stowplan_agent.planning.frame import Frame, loosest
from stowplan_agent.planning.labels import Labels, start
from stowplan_agent.planning.leaf import Leaf
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import HOST, Rows, distinct, joined
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Bools, Floats

ALSO: Final = 60
"""Rows that are priced together with those that are the best by their bounds."""
MOST_AT_ONCE: Final = 1000
"""Rows of a component that are opened or priced before bounds are looked at again."""
FORKS: Final = 3
"""Rows up to which a component is decided first, row by row, where the bound is not sharp."""
LONG: Final = 10_000
"""Rows of which it pays to look for a fast selection among a few first."""
MUCH: Final = 300_000
"""Pairs of rows of the two longest components from which a look pays even if a fast selection is known elsewhere."""
HANDFUL: Final = 8
"""Rows of a component that are not looked at one by one."""
MANY: Final = 100
"""Rows of a component of which it pays to rule out those that priced ones are better than."""
FEW_PAIRS: Final = 1_000_000
"""The same up to which each row is asked for a selection that it is part of."""
MOST_PAIRS: Final = 10_000_000
"""Selections of the three largest components up to which a part is not split."""


class Search(Bounded):
    """The search for the fastest selection of one frame."""

    def __init__(self, spaces: Sequence[Space], frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(spaces, frame, between, also)
        self.leaves: list[Leaf] = []
        self.wide: list[Rows] | None = []
        """Rows that can be part of a best selection in one of these frames, exactly priced; None if it took parts."""

    def run(self, known: Sequence[Rows] = ()) -> bool:
        """Find the fastest selection, and all parts of the space with something as fast; False if nothing fits.

        ``known`` is a selection to start from, one priced row a component, if one is known that may be within limits.
        """
        if not (known and self.take(known, self.alone(known))) and not self.first():
            return False
        pools = [space.coarse(scarce=self.frame.pins_scarce) for space in self.spaces]
        loose = loosest(self.frames)
        pools = self.possible(pools, self.budget(), loose)
        if not all(map(len, pools)):
            return True
        few = [rows.take(sampled(self.dual, rows, c)) for c, rows in enumerate(pools)]
        self.descend(few)
        if sum(map(len, pools)) > LONG:
            self.dual.search(few, self.best)
            self.improve(few)
        if all(map(len, pools := self.possible(pools, self.budget(), loose))):
            self._part(pools)
        self.settle()
        return True

    def beside(self, known: float, vector: Floats) -> bool:
        """Whether there is anything as fast as the ``known`` seconds of a selection elsewhere, and find it.

        ``vector`` are prices to start from, in the sense of `Dual`.
        """
        self.known, self.dual.vector = known, vector
        scarce = self.frame.pins_scarce
        pools = [space.coarse(scarce=scarce) for space in self.spaces]
        pools = self.possible(pools, self.budget(), loosest(self.frames))
        pools = self.within(pools)
        if all(map(len, pools)):
            pools = [space.sharpened(rows) for space, rows in zip(self.spaces, pools, strict=True)]
            self.dual.search([rows.take(sampled(self.dual, rows, c)) for c, rows in enumerate(pools)], self.goal())
            self._part(self.within(pools))
        self.settle()
        return bool(self.leaves)

    def fewest_changes(self) -> float:
        """Of the selections as fast as the best one here: fewest changes and prefetches."""
        labels = [leaf.labels.columns for leaf in self.leaves]
        return min((float(each[:, self.ledger.changes].min()) for each in labels if len(each)), default=np.inf)

    def again(self, near: Search, known: float) -> bool:
        """`beside`, given a finished search of tighter limits that was told of this frame and did not take parts.

        What that search left out takes longer than the best it knew of in all of its frames, for its reduced cost says
        so with any of their limits, or a row is there that takes no more of anything: what it kept is all there is.
        """
        self.known, self.dual.vector = known, near.dual.vector
        self.best, self.chosen = near.best, near.chosen
        if near.wide and all(map(len, pools := self.possible(near.wide, self.budget()))):
            if self.chosen:
                self.descend(pools)
            self._part(pools)
        self.settle()
        return bool(self.leaves)

    def settle(self) -> None:
        """Keep only the selections that are as fast as the best one known."""
        leaves, self.leaves = self.leaves, []
        for leaf in leaves:
            self.dual.vector = leaf.vector
            labels = leaf.labels.take(np.isfinite(self.ledger.needed(leaf.labels.columns, self.budget())))
            if len(labels):
                self.leaves.append(Leaf(leaf.pools, leaf.dual, leaf.vector, labels))

    def _part(self, pools: Sequence[Rows]) -> None:
        """Search a part of the space: split it where the bound is not sharp, until it is small enough to go through."""
        looked = False
        while True:
            if not all(map(len, pools)):
                return
            few = [rows.take(sampled(self.dual, rows, c)) for c, rows in enumerate(pools)]
            self.dual.search(few, self.goal())
            pools = self.within(pools)
            if not all(map(len, pools)):
                return
            # What is best is found in the end anyway: one look is enough.
            if not looked and self._worth_a_look(pools) and self.improve(pools):
                pools = self.within(pools)
            looked = True
            if not any(rows.open.any() for rows in pools):
                break
            pools = [self.some(rows, c, self.spaces[c].opened, rows.open) for c, rows in enumerate(pools)]
        self.wide, pools = pools, self.within(pools, frames=1)
        split = [c for c, rows in enumerate(pools) if 1 < len(rows) <= FORKS]
        if split and self._pairs(pools) > MOST_PAIRS:
            self._fork(pools, max(split, key=lambda c: float(np.ptp(pools[c].bytes[:, :HOST].sum(axis=1)))))
            return
        pools, labels = self._gone_through(pools)
        if len(labels):
            self.leaves.append(Leaf(pools, self.dual, self.dual.vector, labels))

    def _gone_through(self, pools: list[Rows]) -> tuple[list[Rows], Labels]:
        """The selections of these rows, exact: rows are priced where bounds alone leave them in one."""
        if all(map(len, pools)) and prod(sorted(map(len, pools))[-3:]) <= FEW_PAIRS:
            kept = self.merging(pools).completed(HANDFUL)
            pools = [rows.take(index) for rows, index in zip(pools, kept, strict=True)]
        while True:
            if not all(map(len, pools)):
                return pools, start(self.ledger).take(np.zeros(0, dtype=np.int64))
            labels = self.merge(pools)
            used = [distinct(labels.rows[:, c]) for c in range(len(pools))]
            todo = [index[~rows.priced[index]] for index, rows in zip(used, pools, strict=True)]
            exact = np.logical_and.reduce([rows.priced[labels.rows[:, c]] for c, rows in enumerate(pools)])
            better = self.take(pools, labels.take(exact))
            if not any(map(len, todo)):
                return pools, labels
            for space, rows, index in zip(self.spaces, pools, todo, strict=True):
                if len(index):
                    part = space.priced(rows.take(index))
                    rows.times[index], rows.priced[index] = part.times, True
            pools = [self.uncovered(rows, c) if len(rows) > MANY else rows for c, rows in enumerate(pools)]
            if better:
                pools = self.within(pools, frames=1)

    def _worth_a_look(self, pools: Sequence[Rows]) -> bool:
        """Whether to look for a fast selection first: not where one is known that is as fast as the bound; and where
        one is known elsewhere, only if much is left."""
        if self.known < np.inf:
            return prod(sorted(map(len, pools))[-2:]) > MUCH
        return not self.sharp(pools)

    def _pairs(self, pools: Sequence[Rows]) -> int:
        """Selections of the three largest components, at most."""
        most = prod(sorted(map(len, pools))[-3:])
        if most <= MOST_PAIRS:
            return most
        return prod(sorted(len(self.front(rows, c)) for c, rows in enumerate(pools))[-3:])

    def _fork(self, pools: Sequence[Rows], component: int) -> None:
        """Search the part once with each row of one component, the cheapest first."""
        vector, rows = self.dual.vector, pools[component]
        for row in np.argsort(self.dual.reduced(rows, component), kind="stable"):
            self.dual.vector = vector
            self._part([*pools[:component], rows.take(np.array([row])), *pools[component + 1 :]])
        self.wide = None

    def some(self, rows: Rows, component: int, change: Callable[[Rows], Rows], mask: Bools) -> Rows:
        """Change the rows of ``mask`` that are the best by their bounds, and no more at once than can be afforded."""
        todo = np.flatnonzero(mask)
        if not len(todo):
            return rows
        few = rows.take(todo)
        order = np.argsort(self.dual.reduced(few, component), kind="stable")
        if not rows.open[todo[0]]:
            front = undominated(self.ledger.columns(few, component)[:, self.ledger.judged])
            order = distinct(np.concatenate([order[:ALSO], front]))
        todo = todo[order[:MOST_AT_ONCE]]
        chosen = np.zeros(len(rows), dtype=np.bool_)
        chosen[todo] = True
        if rows.open[todo[0]]:
            chosen = rows.open & np.isin(rows.shape, rows.shape[todo])
        return joined([change(rows.take(chosen)), rows.take(~chosen)])
