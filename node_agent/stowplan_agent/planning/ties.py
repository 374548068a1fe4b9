"""Among the selections that are as fast as the best: fewest changes, fewest device bytes, fewest locked bytes, text.

Each tie-break of PLANNING.md, section 4, is settled under those before it. All rows that can be part of a selection
within the tolerance are there (`search`), so nothing is lost. Pins of what streams are reopened for the third one:
where there are pins enough, `search` pinned everything.

Pinned bytes of an Offload are whole numbers and none of them has a shorter text by design: they are given to the pieces
of their curves that save most, then in the record's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan_agent.planning.labels import Labels, Ledger, grown, merged, start
from stowplan_agent.planning.pareto import BLOCK, undominated
from stowplan_agent.planning.rows import ELASTIC, Rows, joined
from stowplan_agent.planning.search import ROUNDING, TOLERANCE, Leaf, Search
from stowplan_agent.planning.table import Floats
from stowplan_api.placement import ComponentPlacement, Placement


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
        leaf.spent()
        pools = []
        for component, space in enumerate(self.spaces):
            others = self._others(ledger, leaf, component)
            if self.frame.pins_scarce:
                pools.append(self._possible(ledger, leaf, component, leaf.pools[component], others))
                continue
            rows = self._possible(ledger, leaf, component, space.coarse(scarce=False), others)
            streaming = rows.shape >= 0
            if space.visits.stays and bool(streaming.any()):
                pinned = space.pinned(np.unique(rows.shape[streaming]))
                pinned = space.priced(self._possible(ledger, leaf, component, pinned, others))
                rows = joined([rows.take(~streaming), pinned])
            pools.append(self._possible(ledger, leaf, component, space.priced(rows), others))
        spent = [leaf.dual.reduced(rows, c) for c, rows in enumerate(pools)]
        labels = merged(ledger, pools, spent, self.budget + self.slack + leaf.dual.worth())
        labels = labels.take(np.isfinite(self.locked(ledger, labels.columns)))
        return Leaf(pools, leaf.dual, leaf.vector, labels)

    def _others(self, ledger: Ledger, leaf: Leaf, component: int) -> Labels:
        """Labels of all other components, of the rows of the leaf."""
        judged = self.search.ledger.judged
        tables = [ledger.columns(rows, c) for c, rows in enumerate(leaf.pools)]
        fronts = [undominated(table[:, judged]) for table in tables]
        others = sorted((c for c in range(len(tables)) if c != component), key=lambda c: len(fronts[c]))
        spent = leaf.spent()
        budget = self.budget + self.slack + leaf.dual.worth() - float(spent[component].min())
        least = ledger.columns(self.spaces[component].coarse(scarce=self.frame.pins_scarce), component).min(axis=0)
        *_, labels = start(ledger), *grown(ledger, tables, fronts, spent, budget, others, beside=least)
        return labels.take(undominated(labels.columns[:, judged]))

    def _possible(self, ledger: Ledger, leaf: Leaf, component: int, rows: Rows, others: Labels) -> Rows:
        """The rows that are within the budget and all limits beside some label of the others."""
        budget = self.budget + self.slack + leaf.dual.worth()
        spent = leaf.dual.reduced(rows, component)
        rows = rows.take(spent <= budget - others.spent.min(initial=np.inf))
        spent = leaf.dual.reduced(rows, component)
        table = ledger.columns(rows, component)
        good = np.zeros(len(rows), dtype=np.bool_)
        for block in range(0, len(rows), BLOCK):
            one, row = np.nonzero(others.spent[:, None] + spent[block : block + BLOCK][None, :] <= budget)
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
        spent, budget = leaf.spent(), self.budget + self.slack + leaf.dual.worth()
        tables = [ledger.columns(rows, c) for c, rows in enumerate(pools)]
        fronts = [undominated(table[:, ledger.judged]) for table in tables]
        suffixes = list(grown(ledger, tables, fronts, spent, budget, range(count - 1, 0, -1)))[::-1]
        done = np.where(ledger.largest, -np.inf, 0.0)
        suffixes.append(start(ledger))
        chosen: list[int] = []
        for component, later in enumerate(suffixes):
            paid = spent[component] + sum(spent[c][one] for c, one in enumerate(chosen))
            possible = []
            for index in np.flatnonzero(paid + later.spent.min(initial=np.inf) <= budget):
                rest = later.columns[later.spent + paid[index] <= budget]
                full = ledger.joined(rest, ledger.joined(tables[component][index], done))
                if bool((ledger.fit(full) & (self.locked(ledger, full) <= least + 1)).any()):
                    possible.append(int(index))
            if not possible:
                return None
            space, rows = self.spaces[component], pools[component]
            chosen.append(min(possible, key=lambda i, s=space, r=rows: s.entry(r, i).canonical()))  # type: ignore[misc]
            done = ledger.joined(tables[component][chosen[-1]], done)
        return self.placed(pools, chosen, done, ledger)

    def placed(self, pools: Sequence[Rows], chosen: Sequence[int], columns: Floats, ledger: Ledger) -> Placement:
        """The placement of one row a component; ``columns`` is their label."""
        need = float(np.ceil(ledger.needed(columns[None, :], self.budget + self.slack)[0]))
        if self.frame.pins_scarce:
            need = min(need, float((self.frame.pinnable - columns[ledger.locked]).min()))
        return Placement(components=self._entries(pools, chosen, max(need, 0.0)))

    def _entries(self, pools: Sequence[Rows], chosen: Sequence[int], need: float) -> tuple[ComponentPlacement, ...]:
        """The entries, with ``need`` bytes a node divided among elastic rows."""
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
