"""Among the selections that are as fast as the best: fewest changes, fewest device bytes, fewest locked bytes, text.

Each tie-break of PLANNING.md, section 4, is settled under those before it. All rows that can be part of a selection
within the tolerance are there (`search`), so nothing is lost. Pins of what streams are reopened for the third one:
where there are pins enough, `search` pinned everything.

Pinned bytes of an Offload are whole numbers and none of them has a shorter text by design: they are given to the pieces
of their curves that save most, then in the record's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.bounded import ROUNDING, TOLERANCE
from stowplan_agent.planning.labels import Labels, Ledger, start
from stowplan_agent.planning.leaf import Leaf
from stowplan_agent.planning.merge import Merge
from stowplan_agent.planning.rows import ELASTIC, Rows, distinct, joined
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.table import Floats
from stowplan_api.placement import ComponentPlacement, Placement

HANDFUL: Final = 8
"""Rows of a component up to which none is ruled out before all are put together."""
AT_ONCE: Final = 1 << 16
"""Pairs of a row and a label of the others that are looked at together."""


class TieBreak:
    """The tie-breaks of one search."""

    def __init__(self, search: Search) -> None:
        self.search, self.spaces, self.frame = search, search.spaces, search.frame
        self.budget = (search.best + search.between) * (1 + TOLERANCE) - search.between
        self.slack = (search.best + search.between) * ROUNDING

    def placement(self) -> Placement:
        """The one best placement."""
        ledger = Ledger(self.frame, self.spaces[0].prices, locked=True)
        columns = np.concatenate([leaf.labels.columns for leaf in self.search.leaves])
        columns = columns[np.isfinite(ledger.needed(columns, self.budget + self.slack))]
        changes, peaks = columns[:, ledger.changes], ledger.peak(columns)
        ledger.most_changes = float(changes.min())
        ledger.most_peak = float(peaks[changes == changes.min()].min())
        leaves = [self._all_rows(ledger, leaf) for leaf in self.search.leaves]
        leaves = [leaf for leaf in leaves if len(leaf.labels)]
        least = min(float(self.locked(ledger, leaf.labels.columns).min()) for leaf in leaves)
        texts = [self._first_text(ledger, leaf, least) for leaf in leaves]
        return min((one for one in texts if one is not None), key=lambda one: one.canonical())

    def _all_rows(self, ledger: Ledger, leaf: Leaf) -> Leaf:
        """The leaf with every row that can still win, whatever its pins, and with their selections."""
        merge, pools = self._completed(ledger, leaf), list[Rows]()
        for component, space in enumerate(self.spaces):
            if self.frame.pins_scarce and len(leaf.pools[component]) <= HANDFUL:
                pools.append(space.priced(leaf.pools[component]))
                continue
            others = self._others(merge, component)
            if self.frame.pins_scarce:
                rows = space.priced(self._possible(ledger, leaf, component, leaf.pools[component], others))
                pools.append(self._possible(ledger, leaf, component, rows, others))
                continue
            seconds = float(others.columns[:, ledger.times][:, -1].min(initial=np.inf))
            room = float(self.frame.room[component] - others.columns[:, 0].min(initial=np.inf))
            rows = space.quick(self.budget + self.slack - seconds, room)
            rows = self._possible(ledger, leaf, component, rows, others)
            streaming = rows.shape >= 0
            if space.visits.stays and bool(streaming.any()):
                pinned = space.pinned(distinct(rows.shape[streaming]))
                pinned = space.priced(self._possible(ledger, leaf, component, pinned, others))
                rows = joined([rows.take(~streaming), pinned])
            pools.append(self._possible(ledger, leaf, component, space.priced(rows), others))
        spent = leaf.dual.all_reduced(pools)
        labels = self._merge(ledger, leaf, pools, spent).full()
        labels = labels.take(np.isfinite(self.locked(ledger, labels.columns)))
        return Leaf(pools, leaf.dual, leaf.vector, labels)

    def _completed(self, ledger: Ledger, leaf: Leaf) -> Merge:
        """The rows of the leaf that are part of a selection, ready to be put together."""
        spent = leaf.spent()
        kept = self._merge(ledger, leaf, leaf.pools, spent, self.search.ledger).completed(1)
        pools = [rows.take(index) for rows, index in zip(leaf.pools, kept, strict=True)]
        few = [each.take(index) for each, index in zip(spent, kept, strict=True)]
        return self._merge(ledger, leaf, pools, few, self.search.ledger)

    def _others(self, merge: Merge, component: int) -> Labels:
        """Labels of all other components, of the rows of the leaf."""
        others = merge.shortest_first(c for c in range(len(merge.tables)) if c != component)
        # Each row that can still win has one at least as good among those of the leaf, which these labels fit.
        *_, before, full = start(merge.ledger), *merge.grown([*others, component])
        used = {tuple(row) for row in full.rows[:, :-1].tolist()}
        return before.take(np.array([tuple(row) in used for row in before.rows.tolist()], dtype=np.bool_))

    def _merge(
        self, ledger: Ledger, leaf: Leaf, pools: Sequence[Rows], spent: Sequence[Floats], judge: Ledger | None = None
    ) -> Merge:
        """The rows of all components within the budget; ``judge`` says by what rows are pruned."""
        most = self.budget + self.slack
        return Merge(ledger, pools, spent, most + leaf.dual.worth(), most, judge.judged if judge else None)

    def _possible(self, ledger: Ledger, leaf: Leaf, component: int, rows: Rows, others: Labels) -> Rows:
        """The rows that are within the budget and all limits beside some label of the others."""
        most = self.budget + self.slack
        budget, spent = most + leaf.dual.worth(), leaf.dual.reduced(rows, component)
        mask = rows.times[:, -1] <= most - others.columns[:, ledger.times][:, -1].min(initial=np.inf)
        mask &= spent <= budget - others.spent.min(initial=np.inf)
        rows, spent = rows.take(mask), spent[mask]
        table = ledger.columns(rows, component)
        good, last, nothing = np.zeros(len(rows), dtype=np.bool_), ledger.times.stop - 1, start(ledger).columns[0]
        step = max(AT_ONCE // max(len(others), 1), 1)
        for block in range(0, len(rows), step):
            part = table[block : block + step]
            mask = others.spent[:, None] + spent[block : block + step] <= budget
            mask &= others.columns[:, last, None] + part[:, last] <= most
            one, row = np.nonzero(mask & ledger.paired(others.columns, part, nothing))
            columns = ledger.joined(others.columns[one], table[block + row])
            fit = ledger.fit(columns) & np.isfinite(ledger.needed(columns, self.budget + self.slack))
            good[block + row[fit]] = True
        return rows.take(good)

    def locked(self, ledger: Ledger, columns: Floats) -> Floats:
        """Locked bytes of all nodes; infinite for labels that are not within the budget."""
        need = ledger.needed(columns, self.budget + self.slack)
        total: Floats = columns[:, ledger.locked].sum(axis=1) + need * len(self.frame.pinnable)
        return total

    def _first_text(self, ledger: Ledger, leaf: Leaf, least: float) -> Placement | None:
        """The selection that locks no more than ``least``, its entries as early in canonical text as can be."""
        pools, count = leaf.pools, len(leaf.pools)
        merge = self._merge(ledger, leaf, pools, leaf.spent())
        suffixes = [start(ledger), *merge.grown(range(count - 1, 0, -1))][::-1]
        done = start(ledger).columns[0]
        chosen: list[int] = []
        for component, later in enumerate(suffixes):
            table = ledger.joined(merge.tables[component], done)
            paid = merge.spent[component] + sum(float(merge.spent[c][one]) for c, one in enumerate(chosen))
            one, row = np.nonzero(later.spent[:, None] + paid <= merge.budget)
            full = ledger.joined(later.columns[one], table[row])
            possible = distinct(row[ledger.fit(full) & (self.locked(ledger, full) <= least + 1)])
            if not len(possible):
                return None
            space, rows = self.spaces[component], pools[component]
            texts = [(space.entry(rows, int(index)).canonical(), int(index)) for index in possible]
            chosen.append(min(texts)[1])
            done = table[chosen[-1]]
        return self.placed(pools, chosen, done, ledger)

    def placed(self, pools: Sequence[Rows], chosen: Sequence[int], columns: Floats, ledger: Ledger) -> Placement:
        """The placement of one row a component; ``columns`` is their label."""
        need = float(np.ceil(ledger.needed(columns[None, :], self.budget + self.slack)[0]))
        room = float((self.frame.pinnable - columns[ledger.locked]).min()) if self.frame.pins_scarce else np.inf
        return Placement(components=self._entries(pools, chosen, max(min(need, room), 0.0), room))

    def _entries(
        self, pools: Sequence[Rows], chosen: Sequence[int], need: float, room: float
    ) -> tuple[ComponentPlacement, ...]:
        """The entries, with ``need`` bytes a node divided among elastic rows; there is room for ``room``."""
        elastic = [c for c, index in enumerate(chosen) if pools[c].shape[index] == ELASTIC]
        pieces = [(-piece.worth, c, piece.bytes) for c in elastic for piece in self.spaces[c].curve.pieces]
        share = dict.fromkeys(elastic, 0.0)
        for _, component, bytes_ in sorted(pieces, key=lambda one: one[:2]):
            taken = min(bytes_, need)
            share[component] += taken
            need -= taken
        return tuple(
            space.entry(rows, index, share.get(c, 0.0))
            for c, (space, rows, index) in enumerate(zip(self.spaces, pools, chosen, strict=True))
        )
