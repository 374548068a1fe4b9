"""All selections of a part of the space that are within limits and the budget, exactly priced.

Most rows are never priced: a row whose bound is not part of any selection within the budget is not part of any exact
one, for exact seconds are no fewer. So labels are made of bounds first, only the rows that they are made of are priced,
and labels are made again, until all of their rows are exact. A label that another one made useless by its bounds comes
back if the other one turns out to be slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np

from stowplan_agent.planning.bounded import Bounded
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.labels import Labels, start
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import Rows, distinct, joined, least
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Bools, Ints

ALSO: Final = 15
"""Rows that are priced together with those that are the best by their bounds."""
MOST_AT_ONCE: Final = 1000
"""Rows of a component that are opened or priced before bounds are looked at again."""
HANDFUL: Final = 8
"""Rows of a component that are not looked at one by one."""
MANY: Final = 100
"""Rows of a component of which it pays to rule out those that priced ones are better than."""
SHORT: Final = 3
"""Rounds after which more rows are priced than those that are asked for."""
FEW_PAIRS: Final = 1_000_000
"""Selections of the three largest components up to which each row is asked for a selection that it is part of."""
MUCH: Final = 300_000
"""Pairs of rows of the two longest components from which a look pays even if a fast selection is known elsewhere."""
MOST_PAIRS: Final = 10_000_000
"""Selections of the three largest components up to which a part is not split."""


class Thorough(Bounded):
    """Goes through a part of the space, where that is small enough."""

    def __init__(self, spaces: Sequence[Space], frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(spaces, frame, between, also)
        self.begun = False
        """Whether it began with the fastest selection that was quickly found, and not with one from elsewhere."""

    def gone_through(self, pools: list[Rows]) -> tuple[list[Rows], Labels]:
        """The selections of these rows, exact: rows are priced where bounds alone leave them in one."""
        pools, rounds = self._narrowed(pools), 0
        while all(map(len, pools)):
            rounds += 1
            labels = self.merge(pools)
            used = [distinct(labels.rows[:, c]) for c in range(len(pools))]
            todo = [index[~rows.priced[index]] for index, rows in zip(used, pools, strict=True)]
            exact = np.logical_and.reduce([rows.priced[labels.rows[:, c]] for c, rows in enumerate(pools)])
            better = self.take(pools, labels.take(exact))
            if not any(map(len, todo)):
                return pools, labels
            for component, (space, rows, asked) in enumerate(zip(self.spaces, pools, todo, strict=True)):
                if len(asked):
                    index = distinct(np.concatenate([asked, self._next(rows, component, rounds)]))
                    part = space.priced(rows.take(index))
                    rows.times[index], rows.priced[index] = part.times, True
            pools = [self.uncovered(rows, c) if len(rows) > MANY else rows for c, rows in enumerate(pools)]
            if better:
                pools = self.within(pools, frames=1)
        return pools, start(self.ledger).take(np.zeros(0, dtype=np.int64))

    def _next(self, rows: Rows, component: int, rounds: int) -> Ints:
        """Rows that are likely to be asked for next: of a handful all; else none in the first rounds, then twice as
        many each time."""
        todo = np.flatnonzero(~rows.priced)
        if len(todo) <= HANDFUL:
            return todo
        count = 1 << rounds if rounds > SHORT else 0
        return todo[least(self.dual.reduced(rows.take(todo), component), count)] if count else todo[:0]

    def _narrowed(self, pools: list[Rows]) -> list[Rows]:
        """The rows that are part of a selection by their bounds; where these are many, the rows exactly priced."""
        if not all(map(len, pools)):
            return pools
        if self.few(pools):
            kept = self.merging(pools).completed(HANDFUL)
            return [rows.take(index) for rows, index in zip(pools, kept, strict=True)]
        looked = False
        while all(map(len, pools)) and not all(rows.priced.all() for rows in pools):
            pools = self.within([self._more_priced(rows, c) for c, rows in enumerate(pools)], frames=1)
            # Among exact rows a look finds what it missed among bounds.
            if not looked and all(map(len, pools)) and self.worth_a_look(pools) and self.improve(pools):
                pools = self.within(pools, frames=1)
            looked = True
        return pools

    def _more_priced(self, rows: Rows, component: int) -> Rows:
        """The rows with more of them exactly priced, without those that these rule out."""
        if rows.priced.all():
            return rows
        return self.uncovered(self.some(rows, component, self.spaces[component].priced, ~rows.priced), component)

    def few(self, pools: Sequence[Rows]) -> bool:
        """Whether it takes less time to go through these rows than to look for better prices."""
        return prod(sorted(map(len, pools))[-3:]) <= FEW_PAIRS

    def worth_a_look(self, pools: Sequence[Rows]) -> bool:
        """Whether to look for a fast selection first: not where one is known that is as fast as the bound; and where
        nothing fast is expected, only if much is left."""
        if self.begun:
            return not self.sharp(pools)
        return prod(sorted(map(len, pools))[-2:]) > MUCH

    def pairs(self, pools: Sequence[Rows]) -> int:
        """Selections of the three largest components, at most."""
        most = prod(sorted(map(len, pools))[-3:])
        if most <= MOST_PAIRS:
            return most
        return prod(sorted(len(self.front(rows, c)) for c, rows in enumerate(pools))[-3:])

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
