"""The fastest selection within limits, with its proof.

Three tools, each lossless, take turns until nothing is left to rule out: the bound of `dual` drops rows that cannot be
part of anything as fast as the best selection known; what is left is opened to all its pins; and `thorough` goes
through what bounds leave, priced exactly. The proof is that no label within the budget is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.dual import sampled
from stowplan_agent.planning.frame import Frame, loosest
from stowplan_agent.planning.leaf import Leaf
from stowplan_agent.planning.rows import HOST, Rows
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.thorough import MOST_PAIRS, Thorough

FORKS: Final = 3
"""Rows up to which a component is decided first, row by row, where the bound is not sharp."""
LONG: Final = 10_000
"""Rows of which it pays to look for a fast selection among a few first."""


class Search(Thorough):
    """The search for the fastest selection of one frame."""

    def __init__(self, spaces: Sequence[Space], frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(spaces, frame, between, also)
        self.leaves: list[Leaf] = []
        self.wide: list[Rows] | None = []
        """Rows that can be part of a best selection in one of these frames; None if it took parts."""

    def run(self, known: Sequence[Rows] = ()) -> bool:
        """Find the fastest selection, and all parts of the space with something as fast; False if nothing fits.

        ``known`` is a selection to start from, one priced row a component, if one is known that may be within limits.
        """
        if not (known and self.take(known, self.alone(known))) and not self.first():
            return False
        if any(space.long for space in self.spaces):
            # The faster a selection is known, the fewer of many rows need be made.
            self.descend([space.sketch for space in self.spaces])
        loose = loosest(self.frames)
        pools = self.possible(self.listed(), self.budget(), loose)
        if not all(map(len, pools)):
            return True
        self.begun = True
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
        pools = self.possible(self.listed(), self.budget(), loosest(self.frames))
        pools = self.within(pools)
        if all(map(len, pools)):
            pools = [space.sharpened(rows) for space, rows in zip(self.spaces, pools, strict=True)]
            self._look_for_prices(pools)
            self._part(pools, looked=True)
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
        if near.wide and all(map(len, pools := self.within(self.possible(near.wide, self.budget())))):
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

    def _look_for_prices(self, pools: Sequence[Rows]) -> None:
        """Look for better prices, with a few rows for many."""
        self.dual.search([rows.take(sampled(self.dual, rows, c)) for c, rows in enumerate(pools)], self.goal())

    def _part(self, pools: Sequence[Rows], *, looked: bool = False) -> None:
        """Search a part of the space: split it where the bound is not sharp, until it is small enough to go through.

        ``looked`` says that better prices were looked for with these rows.
        """
        improved = False
        while True:
            if not all(map(len, pools)):
                return
            if not looked and (any(rows.open.any() for rows in pools) or not self.few(pools)):
                self._look_for_prices(pools)
            looked, pools = False, self.within(pools)
            if not all(map(len, pools)):
                return
            # What is best is found in the end anyway: one look is enough.
            if not improved and self.worth_a_look(pools) and self.improve(pools):
                pools = self.within(pools)
            improved = True
            if not any(rows.open.any() for rows in pools):
                break
            pools = [self.some(rows, c, self.spaces[c].opened, rows.open) for c, rows in enumerate(pools)]
        self.wide, pools = pools, self.within(pools, frames=1)
        split = [c for c, rows in enumerate(pools) if 1 < len(rows) <= FORKS]
        if split and self.pairs(pools) > MOST_PAIRS:
            self._fork(pools, max(split, key=lambda c: float(np.ptp(pools[c].bytes[:, :HOST].sum(axis=1)))))
            return
        pools, labels = self.gone_through(pools)
        if len(labels):
            self.leaves.append(Leaf(pools, self.dual, self.dual.vector, labels))

    def _fork(self, pools: Sequence[Rows], component: int) -> None:
        """Search the part once with each row of one component, the cheapest first."""
        vector, rows = self.dual.vector, pools[component]
        for row in np.argsort(self.dual.reduced(rows, component), kind="stable"):
            self.dual.vector = vector
            self._part([*pools[:component], rows.take(np.array([row])), *pools[component + 1 :]])
        self.wide = None
