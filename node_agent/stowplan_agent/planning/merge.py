"""Selections of several components, one component added at a time, without those that others make useless.

A label that is nowhere better than another one is dropped: whatever completes it completes the other one at least as
well. So is one that cannot be completed within limits, or not within a budget by the bound of `dual`. What is left at
the end holds a best selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from stowplan_agent.planning.labels import Labels, Ledger, start
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import Rows, distinct
from stowplan_agent.planning.table import Bools, Floats, Ints

AT_ONCE: Final = 1 << 18
"""Pairs of a label and a row that are looked at together."""
FEW_PAIRS: Final = 1 << 10
"""Pairs up to which all are put together and then looked at."""
SORTED: Final = 1 << 14
"""Pairs from which it takes less time to sort both and look at a part of them."""
FEW_AT_ONCE: Final = 1 << 12
"""The same, where a few selections do."""
MOST_COMPARED: Final = 6000
"""Labels beyond which it takes less time to carry them on than to compare them."""


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
        return self._replace(rows=self.rows[order], table=self.table[order], spent=self.spent[order])


class Merge:
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
            self._set_front(component, undominated(self.tables[component][:, self.judged]))
        return self._fronts[component]

    def _set_front(self, component: int, rows: Ints) -> None:
        table, spent = self.tables[component][rows], self.spent[component][rows]
        least = float(spent.min(initial=np.inf))
        self._fronts[component] = Front(rows, table, spent, table.min(axis=0, initial=np.inf), least)

    def shortest_first(self, components: Iterable[int]) -> list[int]:
        """The components in the order in which they are added with the least work."""
        return sorted(components, key=lambda component: len(self.front(component).rows))

    def full(self, *, width: int | None = None, enough: int | None = None) -> Labels:
        """Selections of all components within limits: those that can be best, and some more.

        With ``width`` only so many labels are kept each time, the cheapest ones: then there may be better selections.
        With ``enough`` any so many selections do.
        """
        order = self.shortest_first(range(len(self.tables)))
        *_, labels = start(self.ledger), *self.grown(order, width=width, enough=enough)
        return labels.take(np.arange(len(labels)), np.argsort(order))

    def completed(self, few: int) -> list[Ints]:
        """By component: the rows that are part of some selection, if there is any; of no more than ``few``, all."""
        kept = [np.arange(len(table)) for table in self.tables]
        for component in sorted(range(len(kept)), key=lambda c: -len(kept[c])):
            if len(kept[component]) > few:
                self._set_front(component, kept[component])
                others = self.shortest_first(c for c in range(len(kept)) if c != component)
                *_, labels = start(self.ledger), *self.grown([*others, component])
                if not len(labels):
                    return [rows[:0] for rows in kept]
                rows = kept[component] = distinct(labels.rows[:, -1])
                self._set_front(component, rows[undominated(self.tables[component][rows][:, self.judged])])
        return kept

    def grown(
        self,
        order: Sequence[int],
        *,
        width: int | None = None,
        enough: int | None = None,
        beside: Floats | None = None,
    ) -> Iterator[Labels]:
        """Labels of the first component of ``order``, of the first two, and so on; the last ones as they come.

        ``beside`` are columns that must fit as well.
        """
        ledger, labels = self.ledger, start(self.ledger)
        rests = [start(ledger).columns[0] if beside is None else beside]
        for component in order[:0:-1]:
            rests.append(ledger.joined(rests[-1], self.front(component).least))
        for place, component in enumerate(order):
            later = order[place + 1 :]
            allowed = self.budget - sum(self.front(other).least_spent for other in later)
            labels = self._added(labels, self.front(component), allowed, rests.pop(), None if later else enough)
            if width is not None and len(labels) > width:
                labels = labels.take(np.argpartition(labels.spent, width)[:width])
            if later and len(labels) <= MOST_COMPARED:
                labels = labels.take(undominated(labels.columns[:, ledger.judged]))
            yield labels

    def _added(self, labels: Labels, front: Front, allowed: float, rest: Floats, enough: int | None) -> Labels:
        """Labels with one component more, within limits beside ``rest``; cheap questions first."""
        ledger, last = self.ledger, self.ledger.times.stop - 1
        room = self.most - rest[last]
        if len(labels) * len(front.rows) <= FEW_PAIRS:
            return self._all_added(labels, front, allowed, room, rest)
        ends = np.full(len(labels), len(front.rows))
        if len(labels) * len(front.rows) > SORTED:
            sums = [(labels.spent, front.spent, allowed), (labels.columns[:, last], front.table[:, last], room)]
            if ledger.frame.host_scarce:
                sums.append((labels.columns[:, 2], front.table[:, 2], ledger.frame.host - rest[2]))
            ones, others, most = min(sums, key=lambda one: _pairs(*one))
            # Sorted by one sum, what is too much for the least label is too much for all that follow it.
            labels, front = labels.take(np.argsort(ones, kind="stable")), front.take(np.argsort(others, kind="stable"))
            ends = np.searchsorted(np.sort(others), most - np.sort(ones), side="right")
        nothing = np.zeros((0, labels.rows.shape[1] + 1), dtype=np.int64)
        parts = [Labels(labels.columns[:0], nothing, labels.spent[:0])]
        begin, at_once = 0, AT_ONCE if enough is None else FEW_AT_ONCE
        while begin < len(labels) and ends[begin]:
            table, spent = front.table[: ends[begin]], front.spent[: ends[begin]]
            few = labels.take(np.arange(begin, min(begin + max(1, at_once // len(spent)), len(labels))))
            begin += len(few)
            mask = few.spent[:, None] <= allowed - spent
            mask &= few.columns[:, last, None] + table[:, last] <= room
            mask &= ledger.paired(few.columns, table, rest)
            one, column = np.nonzero(mask)
            columns = ledger.joined(few.columns[one], table[column])
            fit = ledger.fit(ledger.joined(columns, rest))
            one, column = one[fit], column[fit]
            rows = np.concatenate([few.rows[one], front.rows[column][:, None]], axis=1)
            parts.append(Labels(columns[fit], rows, few.spent[one] + spent[column]))
            if enough is not None and sum(map(len, parts)) >= enough:
                break
        return Labels(*(np.concatenate([getattr(part, one) for part in parts]) for one in ("columns", "rows", "spent")))

    def _all_added(self, labels: Labels, front: Front, allowed: float, room: float, rest: Floats) -> Labels:
        """The same of so few pairs that to put all of them together is the least work."""
        one, column = np.divmod(np.arange(len(labels) * len(front.rows)), max(len(front.rows), 1))
        columns = self.ledger.joined(labels.columns[one], front.table[column])
        mask = labels.spent[one] <= (allowed - front.spent)[column]
        mask &= columns[:, self.ledger.times.stop - 1] <= room
        index = np.flatnonzero(mask & self.ledger.fit(self.ledger.joined(columns, rest)))
        one, column = one[index], column[index]
        rows = np.concatenate([labels.rows[one], front.rows[column][:, None]], axis=1)
        return Labels(columns[index], rows, labels.spent[one] + front.spent[column])


def _pairs(ones: Floats, others: Floats, most: float) -> int:
    """Pairs whose sum is no more than ``most``."""
    return int(np.searchsorted(np.sort(others), most - ones, side="right").sum())
