"""The best selection that safe moves lead to, for when no order of moves leads to the best one there is.

Every component moves at most once, from its current entry to its chosen one, and what is held must be within limits
after every move. So the search goes through the sets of components that have moved: to each set belong the labels of
what they moved to, each within limits beside the current entries of all others. From a label, one more component moves.
A label that is nowhere better than another one of its set leads to nothing better either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.choice import Ties
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.greedy import gained
from stowplan_agent.planning.labels import Labels, Ledger
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.rows import CURRENT, Rows, joined
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.table import Floats, Ints
from stowplan_agent.planning.underway import UnderWay

UNMOVED: Final = -1
Found = list[tuple[int, Labels]]
"""Sets of moved components, as bits of a number, with what ends in each (rows in the record's order)."""


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
        ledger = self.ledger()
        self.ends = self.ends_of(ledger, self.pools, np.inf)
        search.best = min((float(ledger.seconds(each.columns).min()) for _, each in self.ends), default=np.inf)
        return search.best

    def first(self) -> tuple[float, float] | None:
        """Fewest changes and device bytes of what is as fast as ``search.best``; None where nothing is."""
        ledger, ties = self.ledger(), Ties(self.search)
        kept, found = ties.kept(), list[tuple[float, float]]()
        for _, labels in self.ends:
            good = labels.columns[np.isfinite(ledger.needed(labels.columns, ties.budget + ties.slack))]
            found += zip((good[:, ledger.changes] + kept).tolist(), ledger.peak(good).tolist(), strict=True)
        return min(found, default=None)

    def ledger(self, *, locked: bool = False) -> Ledger:
        """The columns of labels; ``locked`` says that locked bytes count although there are pins enough."""
        given = self.search.frame, self.spaces[0].prices
        return UnderWay(*given, locked=locked) if self.frames else Ledger(*given, locked=locked)

    def _start(self) -> float:
        """Seconds of the current placement if it is within limits, or of an end of moves that is quickly found."""
        ledger = self.search.ledger
        now = self.beside(ledger, 0)[None, :]
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

    def beside(self, ledger: Ledger, moved: int) -> Floats:
        """Columns of the current entries of all components that have not moved."""
        total: Floats = np.where(ledger.largest, -np.inf, 0.0)
        for component, row in enumerate(self.current):
            if not moved >> component & 1:
                total = ledger.joined(total, ledger.columns(row, component)[0])
        return total

    def ends_of(
        self, ledger: Ledger, pools: Sequence[Rows], budget: float, sets: Collection[int] | None = None
    ) -> Found:
        """All labels within limits and the budget of seconds, of every set of moved components; or only of ``sets``."""
        count = len(pools)
        tables = [ledger.columns(rows, c) for c, rows in enumerate(pools)]
        fronts = [undominated(table[:, ledger.judged]) for table in tables]
        quickest = [
            min(float(each[:, ledger.times][:, -1].min(initial=np.inf)) for each in (table, ledger.columns(now, c)))
            for c, (table, now) in enumerate(zip(tables, self.current, strict=True))
        ]
        most = min(budget, self.search.budget())
        nothing = np.where(ledger.largest, -np.inf, 0.0)[None, :]
        known = {0: Labels(nothing, np.full((1, count), UNMOVED), np.zeros(1))}
        found: Found = []
        for moved in range(1 << count):
            if sets is not None and not any(moved & each == moved for each in sets):
                continue
            if self.frames and isinstance(ledger, UnderWay):
                ledger.now = self.frames(moved)
            labels = known.get(moved) if moved == 0 else self._set(ledger, known, tables, fronts, quickest, moved, most)
            if labels is None:
                continue
            known[moved] = labels
            if sets is not None and moved not in sets:
                continue
            full = ledger.joined(labels.columns, self.beside(ledger, moved))
            good = ledger.fit(full) & np.isfinite(ledger.needed(full, budget)) if budget < np.inf else ledger.fit(full)
            if good.any():
                found.append((moved, Labels(full, labels.rows, labels.spent).take(good)))
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
        beside = self.beside(ledger, moved)
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
