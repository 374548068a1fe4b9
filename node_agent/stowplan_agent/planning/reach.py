"""The best selection that safe moves lead to, for when no order of moves leads to the best one there is.

Every component moves at most once, from its current entry to its chosen one, and what is held must be within limits
after every move. So the search goes through the sets of components that have moved: to each set belong the labels of
what they moved to, each within limits beside the current entries of all others. From a label, one more component moves.
A label that is nowhere better than another one of its set leads to nothing better either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.choice import Ties
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.greedy import gained
from stowplan_agent.planning.labels import Labels, Ledger
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import CURRENT, Rows, distinct, joined
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.table import Floats, Ints
from stowplan_agent.planning.underway import UnderWay
from stowplan_api.placement import Placement

UNMOVED: Final = -1
Found = list[tuple[Labels, int]]
"""Labels of sets of moved components (rows in the record's order), and which one."""


class Reach:
    """The selections that can be reached from the current entries, in the frame of a search.

    ``frames`` gives the frame while some components have moved, by the bits of a number; None where it is always that
    of the search, for nothing is prefetched.
    """

    def __init__(self, search: Search, frames: Callable[[int], Frame] | None = None) -> None:
        self.search, self.spaces, self.frames = search, search.spaces, frames
        self.current = [space.standing() for space in self.spaces]
        self.pools: list[Rows] = []
        self.ends: Found = []

    def fastest(self) -> float:
        """Seconds of the fastest selection that can be reached; infinite where there is none."""
        search = self.search
        search.best = self._start()
        self.pools = self._pools()
        ledger = self._ledger()
        self.ends = self._ends(ledger, self.pools, np.inf)
        seconds = (float(ledger.seconds(labels.columns[[one]])[0]) for labels, one in self.ends)
        search.best = min(seconds, default=np.inf)
        return search.best

    def first(self) -> tuple[float, float] | None:
        """Fewest changes and device bytes of what is as fast as ``search.best``; None where nothing is."""
        ledger, ties = self._ledger(), Ties(self.search)
        rows = [labels.columns[[one]] for labels, one in self.ends]
        rows = [row for row in rows if np.isfinite(ledger.needed(row, ties.budget + ties.slack)[0])]
        kept = ties.kept()
        return min(((float(row[0, ledger.changes]) + kept, float(ledger.peak(row)[0])) for row in rows), default=None)

    def placement(self, first: tuple[float, float]) -> Placement:
        """The best placement that can be reached, with so few changes and device bytes."""
        ledger, final, ties = self._ledger(), self._ledger(), Ties(self.search)
        budget = ties.budget + ties.slack
        final.most_changes, final.most_peak = first[0] - ties.kept(), first[1]
        pools = [self._repinned(final, self.pools, c, budget) for c in range(len(self.pools))]
        # On the way more may change and peaks may be higher than in the end, so only ends are held to the best of both.
        within = [end for end in self._ends(ledger, pools, budget) if bool(final.fit(end[0].columns[[end[1]]])[0])]
        least = min(float(ties.locked(ledger, labels.columns[[one]])[0]) for labels, one in within)
        placements = [
            ties.placed(*self._chosen(pools, labels, one), labels.columns[one], ledger)
            for labels, one in within
            if float(ties.locked(ledger, labels.columns[[one]])[0]) <= least + 1
        ]
        return min(placements, key=lambda one: one.canonical())

    def _ledger(self) -> Ledger:
        given = self.search.frame, self.spaces[0].prices
        return UnderWay(*given) if self.frames else Ledger(*given, locked=True)

    def _start(self) -> float:
        """Seconds of the current placement if it is within limits, or of an end of moves that is quickly found."""
        ledger = self.search.ledger
        now = self._beside(ledger, 0)[None, :]
        if not bool(ledger.fit(now)[0]):
            return np.inf
        seconds = float(ledger.seconds(now)[0])
        return seconds if self.frames else gained(self.search, self.current, seconds)

    def _pools(self) -> list[Rows]:
        """Rows that are fast enough and fit beside the smallest of all others, exactly priced."""
        search, ledger = self.search, self.search.ledger
        scarce = search.frame.pins_scarce
        pools = [space.coarse(scarce=scarce) for space in self.spaces]
        while True:
            pools = search.within(pools) if np.isfinite(search.goal()) else pools
            pools = [self._that_fit(ledger, pools, c) for c in range(len(pools))]
            if all(rows.priced.all() for rows in pools):
                break
            still_open = any(rows.open.any() for rows in pools)
            pools = [
                s.opened(rows) if still_open else s.priced(rows) for s, rows in zip(self.spaces, pools, strict=True)
            ]
        pools = [space.gridded(rows) if scarce else rows for space, rows in zip(self.spaces, pools, strict=True)]
        return [rows.take(rows.shape != CURRENT) for rows in pools]

    def _that_fit(self, ledger: Ledger, pools: Sequence[Rows], component: int) -> Rows:
        rest = np.where(ledger.largest, -np.inf, 0.0)
        for other, rows in enumerate(pools):
            if other != component:
                both = joined([rows, self.current[other]])
                rest = ledger.joined(rest, ledger.columns(both, other).min(axis=0))
        rows = pools[component]
        return rows.take(ledger.fit(ledger.joined(ledger.columns(rows, component), rest)))

    def _repinned(self, ledger: Ledger, pools: Sequence[Rows], component: int, budget: float) -> Rows:
        """What can still win, with all its pins: where there are pins enough, everything was pinned."""
        space, rows = self.spaces[component], self._that_fit(ledger, pools, component)
        streaming = rows.shape >= 0
        if self.search.frame.pins_scarce or not space.visits.stays or not bool(streaming.any()):
            return rows
        pinned = space.pinned(distinct(rows.shape[streaming]))
        pinned = space.priced(pinned.take(pinned.times[:, -1] <= budget))
        return joined([rows.take(~streaming), pinned])

    def _beside(self, ledger: Ledger, moved: int) -> Floats:
        """Columns of the current entries of all components that have not moved."""
        total: Floats = np.where(ledger.largest, -np.inf, 0.0)
        for component, row in enumerate(self.current):
            if not moved >> component & 1:
                total = ledger.joined(total, ledger.columns(row, component)[0])
        return total

    def _ends(self, ledger: Ledger, pools: Sequence[Rows], budget: float) -> Found:
        """All labels within limits and the budget of seconds, of every set of moved components."""
        count = len(pools)
        tables = [ledger.columns(rows, c) for c, rows in enumerate(pools)]
        fronts = [undominated(table[:, ledger.judged]) for table in tables]
        quickest = [
            min(float(each[:, ledger.times][:, -1].min(initial=np.inf)) for each in (table, ledger.columns(now, c)))
            for c, (table, now) in enumerate(zip(tables, self.current, strict=True))
        ]
        most = min(budget, self.search.budget())
        nothing = np.where(ledger.largest, -np.inf, 0.0)[None, :]
        sets = {0: Labels(nothing, np.full((1, count), UNMOVED), np.zeros(1))}
        found: Found = []
        for moved in range(1 << count):
            if self.frames and isinstance(ledger, UnderWay):
                ledger.now = self.frames(moved)
            labels = sets.get(moved) if moved == 0 else self._set(ledger, sets, tables, fronts, quickest, moved, most)
            if labels is None:
                continue
            sets[moved] = labels
            full = ledger.joined(labels.columns, self._beside(ledger, moved))
            good = ledger.fit(full) & np.isfinite(ledger.needed(full, budget)) if budget < np.inf else ledger.fit(full)
            found += [(Labels(full, labels.rows, labels.spent), int(one)) for one in np.flatnonzero(good)]
        return found

    def _set(
        self,
        ledger: Ledger,
        sets: dict[int, Labels],
        tables: Sequence[Floats],
        fronts: Sequence[Ints],
        quickest: Sequence[float],
        moved: int,
        most: float,
    ) -> Labels | None:
        parts = []
        beside = self._beside(ledger, moved)
        waiting = sum(each for c, each in enumerate(quickest) if not moved >> c & 1)
        for last in range(len(tables)):
            before = sets.get(moved ^ (1 << last)) if moved >> last & 1 else None
            if before is None or not len(before):
                continue
            one = np.repeat(np.arange(len(before)), len(fronts[last]))
            row = np.tile(fronts[last], len(before))
            columns = ledger.joined(before.columns[one], tables[last][row])
            mask = columns[:, ledger.times][:, -1] + waiting <= most
            one, row, columns = one[mask], row[mask], columns[mask]
            mask = ledger.fit(ledger.joined(columns, beside))
            one, row, columns = one[mask], row[mask], columns[mask]
            rows = before.rows[one].copy()
            rows[:, last] = row
            parts.append(Labels(columns, rows, np.zeros(len(rows))))
        if not parts:
            return None
        both = Labels(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("columns", "rows", "spent")))
        return both.take(undominated(both.columns[:, ledger.judged]))

    def _chosen(self, pools: Sequence[Rows], labels: Labels, one: int) -> tuple[list[Rows], list[int]]:
        """Rows of one label, those of components that have not moved included."""
        row = labels.rows[one]
        return (
            [pools[c] if row[c] != UNMOVED else self.current[c] for c in range(len(pools))],
            [int(each) if each != UNMOVED else 0 for each in row],
        )
