"""Selections of several components side by side, one component added at a time, without those that others make useless.

A label is what a partial selection takes of everything that matters later. A label that is nowhere better than another
one is dropped: whatever completes it completes the other one at least as well. So is one that cannot be completed
within limits, or not within a budget of seconds by the bound of `dual`. What is left at the end holds a best selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.rows import ALWAYS, CURRENT, HOST, LOCKED, OWN, Rows
from stowplan_agent.planning.table import Bools, Floats, Ints

BLOCK: Final = 256
"""Labels that are compared at once."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Partial selections."""

    columns: Floats
    """Label by column (see `Ledger`)."""
    rows: Ints
    """Label by component added, the last one first: index of its row."""
    spent: Floats
    """Reduced cost so far."""

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, index: Ints | Bools) -> Labels:
        """Some of the labels."""
        return Labels(self.columns[index], self.rows[index], self.spent[index])


class Ledger:
    """The columns of a label: always held, worst excess over room, host, locked a node, times, peaks, changes."""

    def __init__(self, frame: Frame, prices: Floats, *, ties: bool) -> None:
        self.frame, self.steps, self.ties = frame, prices, ties
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
        judged[self.locked] = frame.pins_scarce or ties
        judged[self.peaks] = judged[self.changes] = ties
        if not frame.pins_scarce and not ties:
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


def undominated(columns: Floats) -> Ints:
    """Indexes of rows of which no other one is nowhere larger; of equal ones the first."""
    columns = columns[:, (columns != columns[:1]).any(axis=0)] if len(columns) else columns
    if not columns.shape[1]:
        return np.arange(min(len(columns), 1))
    order = np.lexsort(columns.T[::-1])
    columns = columns[order]
    kept: list[Ints] = []
    front = columns[:0]
    for start in range(0, len(columns), BLOCK):
        block = columns[start : start + BLOCK]
        alive = np.flatnonzero(~_covered(front, block))
        block = block[alive]
        inner = (block[None, :, :] <= block[:, None, :]).all(axis=2)
        inner &= np.tri(len(block), k=-1, dtype=np.bool_)
        alive = alive[~inner.any(axis=1)]
        kept.append(order[start + alive])
        front = np.concatenate([front, columns[start + alive]])
    return np.sort(np.concatenate(kept)) if kept else np.empty(0, dtype=np.int64)


def _covered(front: Floats, block: Floats) -> Bools:
    """Whether some row of ``front`` is nowhere larger, for each row of ``block``."""
    found = np.zeros(len(block), dtype=np.bool_)
    for start in range(0, len(front), BLOCK):
        part = front[start : start + BLOCK]
        mask = part[None, :, 0] <= block[:, None, 0]
        for column in range(1, block.shape[1]):
            mask &= part[None, :, column] <= block[:, None, column]
        found |= mask.any(axis=1)
    return found


def merged(
    ledger: Ledger,
    pools: Sequence[Rows],
    spent: Sequence[Floats],
    budget: float,
    *,
    width: int | None = None,
) -> list[Labels]:
    """Labels of the last component, of the last two, and so on to all of them.

    ``spent`` is the reduced cost of each row, ``budget`` what a full label may spend. With ``width`` only so many
    labels are kept each time, the cheapest ones: then the result is a selection, but no proof.
    """
    tables = [ledger.columns(rows, component) for component, rows in enumerate(pools)]
    if not all(map(len, pools)):
        return [Labels(tables[0][:0], np.zeros((0, c + 1), dtype=np.int64), np.zeros(0)) for c in range(len(pools))]
    least = [table.min(axis=0) for table in tables]
    cheapest = [float(each.min()) for each in spent]
    count = len(pools)
    fronts = [undominated(table[:, ledger.judged]) for table in tables]
    labels = Labels(np.where(ledger.largest, -np.inf, 0.0)[None, :], np.zeros((1, 0), dtype=np.int64), np.zeros(1))
    found = []
    for component in range(count - 1, -1, -1):
        rest = np.where(ledger.largest, -np.inf, 0.0)
        for earlier in range(component):
            rest = np.where(ledger.largest, np.maximum(rest, least[earlier]), rest + least[earlier])
        allowed = budget - sum(cheapest[:component])
        front = fronts[component]
        total = labels.spent[:, None] + spent[component][front][None, :]
        one, place = np.nonzero(total <= allowed)
        row = front[place]
        columns = ledger.joined(labels.columns[one], tables[component][row])
        fit = ledger.fit(ledger.joined(columns, rest))
        one, place, row, columns = one[fit], place[fit], row[fit], columns[fit]
        labels = Labels(columns, np.concatenate([row[:, None], labels.rows[one]], axis=1), total[one, place])
        if width is not None and len(labels) > width:
            labels = labels.take(np.sort(np.argsort(labels.spent, kind="stable")[:width]))
        labels = labels.take(undominated(labels.columns[:, ledger.judged]))
        found.append(labels)
    return found
