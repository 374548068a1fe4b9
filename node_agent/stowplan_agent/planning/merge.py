"""Selections of several components, one component added at a time, without those that others make useless.

A label that is nowhere better than another one is dropped: whatever completes it completes the other one at least as
well. So is one that cannot be completed within limits, or not within a budget by the bound of `dual`. What is left at
the end holds a best selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.fronts import Front, Fronts
from stowplan_agent.planning.labels import Labels, start
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import distinct
from stowplan_agent.planning.table import Floats, Ints

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


class Merge(Fronts):
    """Adds the components of a selection one to another."""

    def full(self, *, width: int | None = None, enough: int | None = None) -> Labels:
        """Selections of all components within limits: those that can be best, and some more.

        With ``width`` only so many labels are kept each time, the cheapest ones: then there may be better selections.
        With ``enough`` any so many selections do.
        """
        order = self.shortest_first(range(len(self.tables)))
        begun = self.begun(order)
        *_, labels = begun, *self.grown(order, begun=begun, width=width, enough=enough)
        return labels.take(np.arange(len(labels)), np.argsort(order))

    def completed(self, few: int) -> list[Ints]:
        """By component: the rows that are part of some selection, if there is any; of no more than ``few``, all."""
        kept = [np.arange(len(table)) for table in self.tables]
        for component in sorted(range(len(kept)), key=lambda c: -len(kept[c])):
            if len(kept[component]) > few:
                self.set_front(component, kept[component])
                others = self.shortest_first(c for c in range(len(kept)) if c != component)
                begun = self.begun([*others, component])
                *_, labels = begun, *self.grown([*others, component], begun=begun)
                if not len(labels):
                    return [rows[:0] for rows in kept]
                rows = kept[component] = distinct(labels.rows[:, -1])
                self.set_front(component, rows[undominated(self.tables[component][rows][:, self.judged])])
        return kept

    def grown(
        self,
        order: Sequence[int],
        *,
        begun: Labels | None = None,
        width: int | None = None,
        enough: int | None = None,
    ) -> Iterator[Labels]:
        """Labels of the first component of ``order``, of the first two, and so on; the last ones as they come.

        Those of the first components may be ``begun``: then only labels of more than these come.
        """
        ledger, labels = self.ledger, start(self.ledger) if begun is None else begun
        order = order[labels.rows.shape[1] :]
        rests = [start(ledger).columns[0]]
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
            one, column = mask.nonzero()
            columns = ledger.joined(few.columns.take(one, axis=0), table.take(column, axis=0))
            parts.append(self._fitting(few, front, one, column, columns, rest))
            if enough is not None and sum(map(len, parts)) >= enough:
                break
        if len(parts) == 2:
            return parts[1]
        return Labels(*(np.concatenate([getattr(part, one) for part in parts]) for one in ("columns", "rows", "spent")))

    def _all_added(self, labels: Labels, front: Front, allowed: float, room: float, rest: Floats) -> Labels:
        """The same of so few pairs that to put all of them together is the least work."""
        pairs = self.ledger.joined(labels.columns[:, None], front.table)
        mask = labels.spent[:, None] <= allowed - front.spent
        mask &= pairs[:, :, self.ledger.times.stop - 1] <= room
        index = mask.ravel().nonzero()[0]
        one, column = np.divmod(index, max(len(front.rows), 1))
        columns = pairs.reshape(-1, pairs.shape[2]).take(index, axis=0)
        return self._fitting(labels, front, one, column, columns, rest)

    def _fitting(self, labels: Labels, front: Front, one: Ints, column: Ints, columns: Floats, rest: Floats) -> Labels:
        """The pairs of labels ``one`` and rows ``column`` of a front that are within limits beside ``rest``; both
        together are ``columns``."""
        fit = self.ledger.fit(self.ledger.joined(columns, rest)).nonzero()[0]
        one, column = one.take(fit), column.take(fit)
        rows = np.concatenate([labels.rows.take(one, axis=0), front.rows.take(column)[:, None]], axis=1)
        return Labels(columns.take(fit, axis=0), rows, labels.spent.take(one) + front.spent.take(column))


def _pairs(ones: Floats, others: Floats, most: float) -> int:
    """Pairs whose sum is no more than ``most``."""
    return int(np.searchsorted(np.sort(others), most - ones, side="right").sum())
