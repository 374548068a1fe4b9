"""What partial selections take of everything that matters later, in columns: sums, and largest values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.rows import A_PREFETCH, ALWAYS, CURRENT, HOST, LOCKED, OWN, PREFETCH, Rows
from stowplan_agent.planning.table import Bools, Floats, Ints

NO_ROW: Final = 1e300
"""What no row at all takes of anything: more than any limit. It is finite, for what takes nothing is minus infinity in
columns of which the largest counts, and the sum of both is no number."""


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
        # Whole numbers: numpy takes rows by a mask, or by indexing, many times as slowly.
        places = index.nonzero()[0] if index.dtype == np.bool_ else index
        rows = self.rows.take(places, axis=0)
        rows = rows if order is None else rows.take(order, axis=1)
        return Labels(self.columns.take(places, axis=0), rows, self.spent.take(places))


class Ledger:
    """The columns of a label: always held, worst excess over room, host, locked a node, times, peaks, changes (and
    prefetches, `A_PREFETCH`), and what is held besides in each interval in which a prefetch may hold something.

    ``locked`` says that locked bytes count although there are pins enough.
    """

    def __init__(self, frame: Frame, prices: Floats, *, locked: bool = False) -> None:
        self.frame, self.steps = frame, prices
        nodes, times = len(frame.pinnable), len(prices)
        self.locked = slice(3, 3 + nodes)
        self.times = slice(3 + nodes, 3 + nodes + times)
        self.peaks = slice(3 + nodes + times, 3 + nodes + times + len(frame.peaks))
        self.changes = 3 + nodes + times + len(frame.peaks)
        self.early = slice(self.changes + 1, self.changes + 1 + len(frame.early))
        largest = np.zeros(self.early.stop, dtype=np.bool_)
        largest[1] = True
        largest[self.peaks] = True
        self.largest = largest
        """Columns of which the largest counts, not the sum."""
        self._largest: list[int] = np.flatnonzero(largest).tolist()
        judged = np.ones(self.early.stop, dtype=np.bool_)
        judged[2] = frame.host_scarce
        judged[self.locked] = frame.pins_scarce or locked
        if not frame.pins_scarce and not locked:
            judged[self.times] = False
            judged[self.times.stop - 1] = True
        for index, peak in enumerate(frame.peaks):
            # With one reserve for all intervals the largest interval is the one with the least room: column 1 again.
            runs = np.isfinite(frame.room)
            total = frame.room[runs] + peak.own[runs]
            judged[self.peaks.start + index] = bool((total != total[:1]).any())
        self.judged = judged
        self.most_changes = np.inf
        self.most_peak = np.inf

    def columns(self, rows: Rows, component: int) -> Floats:
        """What rows of one component put into each column."""
        frame = self.frame
        table = np.zeros((len(rows), self.early.stop))
        table[:, 0] = rows.bytes[:, ALWAYS]
        table[:, 1] = rows.bytes[:, OWN] - frame.room[component]
        table[:, 2] = rows.bytes[:, HOST]
        table[:, self.locked] = rows.bytes[:, LOCKED:]
        table[:, self.times] = rows.times
        for index, peak in enumerate(frame.peaks):
            table[:, self.peaks.start + index] = rows.bytes[:, OWN] + peak.own[component]
        table[:, self.changes] = (rows.shape != CURRENT) + A_PREFETCH * (rows.shape <= PREFETCH)
        for index, early in enumerate(frame.early, self.early.start):
            if component == early.owner:
                table[:, index] = rows.bytes[:, OWN]
            elif component in early.components:
                table[:, index] = np.where(rows.shape == PREFETCH, rows.bytes[:, OWN], 0.0)
        return table

    def joined(self, ones: Floats, others: Floats) -> Floats:
        """The columns of both together."""
        total: Floats = ones + others
        for column in self._largest:
            np.maximum(ones[..., column], others[..., column], out=total[..., column])
        return total

    def fit(self, columns: Floats) -> Bools:
        """Whether labels are within limits."""
        frame = self.frame
        mask = self.on_device(columns)
        if frame.host_scarce:
            mask &= columns[:, 2] <= frame.host
        if self.most_peak < np.inf:
            mask &= (columns[:, self.changes] <= self.most_changes) & (self.peak(columns) <= self.most_peak)
        if frame.pins_scarce:
            for column, most in enumerate(frame.pinnable.tolist(), self.locked.start):
                mask &= columns[:, column] <= most
        return mask

    def on_device(self, columns: Floats) -> Bools:
        """Whether labels are within the limits of device memory."""
        mask: Bools = (columns[:, 0] + columns[:, 1] <= 0) & (columns[:, 0] <= self.frame.idle_room)
        for index, early in enumerate(self.frame.early, self.early.start):
            mask &= columns[:, 0] + columns[:, index] <= early.room
        return mask

    def paired(self, ones: Floats, others: Floats, rest: Floats) -> Bools:
        """Pairs of ``ones`` and ``others`` that, with ``rest``, are within the limits of device and host memory."""
        held = ones[:, 0, None] + (others[:, 0] + rest[0])
        mask: Bools = held <= self.frame.idle_room
        held += np.maximum(ones[:, 1, None], np.maximum(others[:, 1], rest[1]))
        mask &= held <= 0
        if self.frame.host_scarce:
            mask &= ones[:, 2, None] + (others[:, 2] + rest[2]) <= self.frame.host
        return mask

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
            for place, held in enumerate(peak.early, self.early.start):
                largest = np.maximum(largest, columns[:, place] + held)
            total += peak.outside + peak.ranks * (columns[:, 0] + largest)
        return total


def start(ledger: Ledger) -> Labels:
    """The label of no component."""
    nothing = np.where(ledger.largest, -np.inf, 0.0)
    return Labels(nothing[None, :], np.zeros((1, 0), dtype=np.int64), np.zeros(1))
