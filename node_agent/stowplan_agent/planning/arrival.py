"""The best placement that safe moves lead to in one way to prefetch, once it is known how fast it is.

Of the ends that are as fast (`reach`), those with the fewest changes and device bytes are left. They are looked for
again among the few rows that can be part of one, with all of their pins: fewest locked bytes and the text decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan_agent.planning.choice import Ties
from stowplan_agent.planning.labels import NO_ROW, Labels
from stowplan_agent.planning.reach import UNMOVED, Reach
from stowplan_agent.planning.reopened import Reopened, locked_bytes
from stowplan_agent.planning.rows import Rows
from stowplan_agent.planning.table import Bools, Floats
from stowplan_api.placement import Placement


class Arrival:
    """The ends of ``reach`` that are best by ``first``: so few changes and device bytes."""

    def __init__(self, reach: Reach, first: tuple[float, float]) -> None:
        self.reach, self.ties = reach, Ties(reach.search)
        self.budget = self.ties.budget + self.ties.slack
        self.ledger, self.final = reach.ledger(locked=True), reach.ledger(locked=True)
        # On the way more may change and peaks may be higher than in the end: only ends are held to the best of both.
        self.final.most_changes, self.final.most_peak = first[0] - self.ties.kept(), first[1]
        self.sets = [moved for moved, labels in reach.ends if self._last(labels.columns).any()]
        """Sets of moved components in which such an end is."""

    def placement(self) -> Placement:
        """The end that locks the fewest bytes; of these, the first by its text."""
        pools, seconds = self._possible()
        if self.reach.search.frame.pins_scarce:
            return self._first_text(pools, *self._least_locked(pools))
        # Where there are pins enough, everything was pinned.
        reopened = Reopened(self.reach.spaces, pools, seconds, self._standing())
        for limit in reopened.limits():
            pools = reopened.within(limit)
            least, ends = self._least_locked(pools)
            if limit < least < np.inf:
                pools = reopened.within(least)
                least, ends = self._least_locked(pools)
            if least < np.inf:
                break
        return self._first_text(pools, least, ends)

    def _least_locked(self, pools: Sequence[Rows]) -> tuple[float, list[Labels]]:
        """The fewest bytes that an end of these rows locks, infinite where there is none; and the ends."""
        found = self.reach.ends_of(self.ledger, pools, self.budget, self.sets)
        ends = [labels.take(self._last(labels.columns)) for _, labels in found]
        locked = [self.ties.locked(self.ledger, labels.columns) for labels in ends]
        return min((float(each.min(initial=np.inf)) for each in locked), default=np.inf), ends

    def _first_text(self, pools: Sequence[Rows], least: float, ends: Sequence[Labels]) -> Placement:
        placements = []
        for every in ends:
            labels = every.take(self.ties.locked(self.ledger, every.columns) <= least + 1)
            for columns, chosen in zip(labels.columns, labels.rows.tolist(), strict=True):
                beside = zip(pools, self.reach.current, chosen, strict=True)
                rows = [now if row == UNMOVED else moved for moved, now, row in beside]
                places = [max(row, 0) for row in chosen]
                placements.append(self.ties.placed(rows, places, columns, self.ledger))
        return min(placements, key=lambda one: one.canonical())

    def _standing(self) -> list[float]:
        """By component: bytes that it locks where it stays; infinite where it moves in all sets."""
        moves = [all(moved >> c & 1 for moved in self.sets) for c in range(len(self.reach.pools))]
        return [
            np.inf if each else float(locked_bytes(row)[0]) for each, row in zip(moves, self.reach.current, strict=True)
        ]

    def _last(self, columns: Floats) -> Bools:
        """Whether labels are among the best ends."""
        mask: Bools = self.final.fit(columns) & np.isfinite(self.ledger.needed(columns, self.budget))
        return mask

    def _possible(self) -> tuple[list[Rows], list[float]]:
        """By component: the rows that can be part of such an end, and the seconds that a row of any pins may take."""
        pools = self.reach.pools
        tables = [self.final.columns(rows, c) for c, rows in enumerate(pools)]
        good = [np.zeros(len(rows), dtype=np.bool_) for rows in pools]
        seconds = [-np.inf] * len(pools)
        for moved in self.sets:
            for component, mask, left in self._of_set(tables, moved):
                good[component] |= mask
                seconds[component] = max(seconds[component], left)
        return [rows.take(mask) for rows, mask in zip(pools, good, strict=True)], seconds

    def _of_set(self, tables: Sequence[Floats], moved: int) -> list[tuple[int, Bools, float]]:
        """The rows that fit beside what stays and the least of what moves; rows that do not are no longer the least."""
        final, last, stays = self.final, self.final.times.stop - 1, self.reach.beside(self.final, moved)
        members = [c for c in range(len(tables)) if moved >> c & 1]
        masks = {c: np.ones(len(tables[c]), dtype=np.bool_) for c in members}
        left = dict.fromkeys(members, np.inf)
        changed = True
        while changed:
            changed = False
            for component in members:
                rest = stays
                for other in members:
                    if other != component:
                        rest = final.joined(rest, tables[other][masks[other]].min(axis=0, initial=NO_ROW))
                left[component] = self.budget - float(rest[last])
                columns = final.joined(tables[component], rest)
                mask = masks[component] & final.fit(columns) & (columns[:, last] <= self.budget)
                changed |= len(members) > 1 and bool((mask != masks[component]).any())
                masks[component] = mask
        return [(c, masks[c], left[c]) for c in members]
