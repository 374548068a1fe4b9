"""The rows of each component that are not useless beside others of it, and the selections of the fewest of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from stowplan_agent.planning.labels import NO_ROW, Labels, Ledger, start
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import Rows
from stowplan_agent.planning.table import Bools, Floats, Ints

FEW_SELECTIONS: Final = 1 << 9
"""Selections of the first components up to which all are put together at once."""


class Front(NamedTuple):
    """Rows of one component."""

    rows: Ints
    table: Floats
    """Their columns."""
    spent: Floats
    least: Floats
    """The least of each column."""
    least_spent: float

    def take(self, order: Ints) -> Front:
        """The rows in another order."""
        return self._replace(rows=self.rows[order], table=self.table.take(order, axis=0), spent=self.spent[order])


class Fronts:
    """The components of a selection, ready to be added one to another.

    ``spent`` is the reduced cost of each row, ``budget`` what a full label may spend of it, ``most`` the seconds that a
    full label may take. ``judged`` are the columns by which rows are useless beside others, those of the ledger if it
    is not given.
    """

    def __init__(
        self,
        ledger: Ledger,
        pools: Sequence[Rows],
        spent: Sequence[Floats],
        budget: float,
        most: float = np.inf,
        judged: Bools | None = None,
    ) -> None:
        self.ledger, self.spent, self.budget, self.most = ledger, spent, budget, most
        self.judged = ledger.judged if judged is None else judged
        self.tables = [ledger.columns(rows, component) for component, rows in enumerate(pools)]
        self._fronts: dict[int, Front] = {}

    def front(self, component: int) -> Front:
        """The rows of a component that are not useless."""
        if component not in self._fronts:
            self.set_front(component, undominated(self.tables[component][:, self.judged]))
        return self._fronts[component]

    def set_front(self, component: int, rows: Ints) -> None:
        """Put together only these rows of a component."""
        table, spent = self.tables[component].take(rows, axis=0), self.spent[component].take(rows)
        least = float(spent.min(initial=np.inf))
        self._fronts[component] = Front(rows, table, spent, table.min(axis=0, initial=NO_ROW), least)

    def shortest_first(self, components: Iterable[int]) -> list[int]:
        """The components in the order in which they are added with the least work."""
        return sorted(components, key=lambda component: len(self.front(component).rows))

    def begun(self, order: Sequence[int]) -> Labels:
        """Labels of the first components of ``order``, of as many as have few selections together."""
        fronts, count = [], 1
        for component in order:
            count *= len(self.front(component).rows)
            if count > FEW_SELECTIONS:
                break
            fronts.append(self.front(component))
        if len(fronts) < 2:
            return start(self.ledger)
        columns, spent = fronts[0].table, fronts[0].spent
        for front in fronts[1:]:
            columns = self.ledger.joined(columns[:, None], front.table).reshape(-1, columns.shape[1])
            spent = (spent[:, None] + front.spent).ravel()
        later = order[len(fronts) :]
        rest, least = self._rest(later), sum(self.front(other).least_spent for other in later)
        mask = (spent <= self.budget - least) & self.ledger.fit(self.ledger.joined(columns, rest))
        last = self.ledger.times.stop - 1
        mask &= columns[:, last] <= self.most - rest[last]
        left = index = mask.nonzero()[0]
        rows = np.empty((len(index), len(fronts)), dtype=np.int64)
        for place in range(len(fronts) - 1, -1, -1):
            left, row = np.divmod(left, max(len(fronts[place].rows), 1))
            rows[:, place] = fronts[place].rows.take(row)
        labels = Labels(columns.take(index, axis=0), rows, spent.take(index))
        return labels.take(undominated(labels.columns[:, self.ledger.judged])) if later else labels

    def _rest(self, components: Iterable[int]) -> Floats:
        """The least that components put into each column together."""
        rest: Floats = start(self.ledger).columns[0]
        for component in components:
            rest = self.ledger.joined(rest, self.front(component).least)
        return rest
