"""Selections of several components side by side, one component added at a time, without those that others make useless.

A label is what a partial selection takes of everything that matters later. A label that is nowhere better than another
one is dropped: whatever completes it completes the other one at least as well. So is one that cannot be completed
within limits, or not within a budget of seconds by the bound of `dual`. What is left at the end holds a best selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import ALWAYS, CURRENT, HOST, LOCKED, OWN, Rows
from stowplan_agent.planning.table import Bools, Floats, Ints

AT_ONCE: Final = 1 << 20
"""Pairs of a label and a row that are looked at together."""
FEW_AT_ONCE: Final = 1 << 12
"""The same, where a few selections do."""
MOST_COMPARED: Final = 6000
"""Labels beyond which it takes less time to carry them on than to compare them."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Partial selections."""

    columns: Floats
    """Label by column (see `Ledger`)."""
    rows: Ints
    """Label by component added: index of its row."""
    spent: Floats
    """Reduced cost so far."""

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, index: Ints | Bools, order: Ints | None = None) -> Labels:
        """Some of the labels; with ``order``, their rows in that order of components."""
        rows = self.rows[index]
        return Labels(self.columns[index], rows if order is None else rows[:, order], self.spent[index])


class Ledger:
    """The columns of a label: always held, worst excess over room, host, locked a node, times, peaks, changes.

    ``locked`` says that locked bytes count although there are pins enough.
    """

    def __init__(self, frame: Frame, prices: Floats, *, locked: bool = False) -> None:
        self.frame, self.steps = frame, prices
        nodes, times = len(frame.pinnable), len(prices)
        self.locked = slice(3, 3 + nodes)
        self.times = slice(3 + nodes, 3 + nodes + times)
        self.peaks = slice(3 + nodes + times, 3 + nodes + times + len(frame.peaks))
        self.changes = 3 + nodes + times + len(frame.peaks)
        largest = np.zeros(self.changes + 1, dtype=np.bool_)
        largest[1] = True
        largest[self.peaks] = True
        self.largest = largest
        """Columns of which the largest counts, not the sum."""
        judged = np.ones(self.changes + 1, dtype=np.bool_)
        judged[2] = frame.host_scarce
        judged[self.locked] = frame.pins_scarce or locked
        if not frame.pins_scarce and not locked:
            judged[self.times] = False
            judged[self.times.stop - 1] = True
        self.judged = judged
        self.most_changes = np.inf
        self.most_peak = np.inf

    def columns(self, rows: Rows, component: int) -> Floats:
        """What rows of one component put into each column."""
        frame = self.frame
        table = np.zeros((len(rows), self.changes + 1))
        table[:, 0] = rows.bytes[:, ALWAYS]
        table[:, 1] = rows.bytes[:, OWN] - frame.room[component]
        table[:, 2] = rows.bytes[:, HOST]
        table[:, self.locked] = rows.bytes[:, LOCKED:]
        table[:, self.times] = rows.times
        for index, peak in enumerate(frame.peaks):
            table[:, self.peaks.start + index] = rows.bytes[:, OWN] + peak.own[component]
        table[:, self.changes] = rows.shape != CURRENT
        return table

    def joined(self, ones: Floats, others: Floats) -> Floats:
        """The columns of both together."""
        return np.where(self.largest, np.maximum(ones, others), ones + others)

    def fit(self, columns: Floats) -> Bools:
        """Whether labels are within limits."""
        frame = self.frame
        mask: Bools = (columns[:, 0] + columns[:, 1] <= 0) & (columns[:, 0] <= frame.idle_room)
        mask &= columns[:, 2] <= frame.host
        if np.isfinite(self.most_peak):
            mask &= (columns[:, self.changes] <= self.most_changes) & (self.peak(columns) <= self.most_peak)
        return mask & (columns[:, self.locked] <= frame.pinnable).all(axis=1)

    def seconds(self, columns: Floats) -> Floats:
        """Least seconds of full labels, elastic pins divided."""
        times = columns[:, self.times]
        if not self.frame.pins_scarce:
            return times[:, -1]
        left = (self.frame.pinnable - columns[:, self.locked]).min(axis=1)
        least: Floats = (times - self.steps * left[:, None]).max(axis=1)
        return least

    def needed(self, columns: Floats, budget: float) -> Floats:
        """Bytes that elastic rows must lock on each node for a budget of seconds; infinite where none suffice."""
        times = columns[:, self.times]
        need = np.where(times[:, -1] <= budget, 0.0, np.inf)
        if len(self.steps) > 1:
            need = np.maximum(need, ((times[:, :-1] - budget) / self.steps[:-1]).max(axis=1))
        if self.frame.pins_scarce:
            left = (self.frame.pinnable - columns[:, self.locked]).min(axis=1)
            need = np.where(need <= left + 1, need, np.inf)
        return need

    def peak(self, columns: Floats) -> Floats:
        """Sum over ranks of the largest interval: PLANNING.md's tie-break."""
        total = np.zeros(len(columns))
        for index, peak in enumerate(self.frame.peaks):
            largest = np.maximum(columns[:, self.peaks.start + index], peak.idle)
            total += peak.outside + peak.ranks * (columns[:, 0] + largest)
        return total


def start(ledger: Ledger) -> Labels:
    """The label of no component."""
    nothing = np.where(ledger.largest, -np.inf, 0.0)
    return Labels(nothing[None, :], np.zeros((1, 0), dtype=np.int64), np.zeros(1))


class Merge:
    """The components of a selection, ready to be added one to another.

    ``spent`` is the reduced cost of each row, ``budget`` what a full label may spend of it, ``most`` the seconds that a
    full label may take.
    """

    def __init__(
        self, ledger: Ledger, pools: Sequence[Rows], spent: Sequence[Floats], budget: float, most: float = np.inf
    ) -> None:
        self.ledger, self.spent, self.budget, self.most = ledger, spent, budget, most
        self.tables = [ledger.columns(rows, component) for component, rows in enumerate(pools)]
        self.fronts = [undominated(table[:, ledger.judged]) for table in self.tables]

    def full(self, *, width: int | None = None, enough: int | None = None) -> Labels:
        """Selections of all components within limits: those that can be best, and some more.

        With ``width`` only so many labels are kept each time, the cheapest ones: then there may be better selections.
        With ``enough`` any so many selections do.
        """
        order = sorted(range(len(self.fronts)), key=lambda component: len(self.fronts[component]))
        *_, labels = start(self.ledger), *self.grown(order, width=width, enough=enough)
        return labels.take(np.arange(len(labels)), np.argsort(order))

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
        for place, component in enumerate(order):
            later = order[place + 1 :]
            rest = start(ledger).columns[0] if beside is None else beside
            for other in later:
                front = self.tables[other][self.fronts[other]]
                rest = ledger.joined(rest, front.min(axis=0, initial=np.inf))
            allowed = self.budget - sum(float(self.spent[o][self.fronts[o]].min(initial=np.inf)) for o in later)
            labels = self._added(labels, component, allowed, rest, None if later else enough)
            if width is not None and len(labels) > width:
                labels = labels.take(np.argpartition(labels.spent, width)[:width])
            if later and len(labels) <= MOST_COMPARED:
                labels = labels.take(undominated(labels.columns[:, ledger.judged]))
            yield labels

    def _added(self, labels: Labels, component: int, allowed: float, rest: Floats, enough: int | None) -> Labels:
        """Labels with one component more, within limits beside ``rest``; cheap questions first."""
        ledger, front = self.ledger, self.fronts[component]
        table, spent = self.tables[component][front], self.spent[component][front]
        last = ledger.times.stop - 1
        room = self.most - rest[last]
        parts: list[Labels] = []
        step = max(1, (AT_ONCE if enough is None else FEW_AT_ONCE) // max(len(front), 1))
        for begin in range(0, max(len(labels), 1), step):
            few = labels.take(np.arange(begin, min(begin + step, len(labels))))
            one, column = np.nonzero(few.spent[:, None] <= allowed - spent)
            quick = few.columns[one, last] + table[column, last] <= room
            one, column = one[quick], column[quick]
            columns = ledger.joined(few.columns[one], table[column])
            fit = ledger.fit(ledger.joined(columns, rest))
            one, column = one[fit], column[fit]
            rows = np.concatenate([few.rows[one], front[column][:, None]], axis=1)
            parts.append(Labels(columns[fit], rows, few.spent[one] + spent[column]))
            if enough is not None and sum(map(len, parts)) >= enough:
                break
        return Labels(*(np.concatenate([getattr(part, one) for part in parts]) for one in ("columns", "rows", "spent")))
