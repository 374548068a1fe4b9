"""Among the selections that are as fast as the best: fewest changes, fewest device bytes, fewest locked bytes, text.

Each tie-break of PLANNING.md, section 4, is settled under those before it. All rows that can be part of a selection
within the tolerance are there (`search`), so nothing is lost. Pins of what streams are reopened for the third one:
where there are pins enough, `search` pinned everything.

Pinned bytes of an Offload are whole numbers and none of them has a shorter text by design: they are given to the pieces
of their curves that save most, then in the record's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stowplan_agent.planning.labels import Labels, Ledger, merged
from stowplan_agent.planning.rows import ELASTIC, Rows, joined
from stowplan_agent.planning.search import ROUNDING, TOLERANCE, Leaf, Search
from stowplan_agent.planning.table import Floats
from stowplan_api.placement import ComponentPlacement, Placement


@dataclass(frozen=True, slots=True)
class _Part:
    """A leaf with the rows that can still win, and its labels from the last component to all."""

    leaf: Leaf
    labels: list[Labels]


class TieBreak:
    """The tie-breaks of one search."""

    def __init__(self, search: Search) -> None:
        self.search, self.spaces, self.frame = search, search.spaces, search.frame
        self.budget = (search.best + search.between) * (1 + TOLERANCE) - search.between
        self.slack = (search.best + search.between) * ROUNDING

    def placement(self) -> Placement:
        """The one best placement."""
        ledger = self._ledger()
        ledger.judged[ledger.locked] = self.frame.pins_scarce
        found = [(part, self._ends(ledger, part.labels[-1])) for part in self._parts(ledger, self.search.leaves)]
        ends = [(part.labels[-1].columns[i]) for part, index in found for i in index]
        columns = np.array(ends)
        changes, peaks = columns[:, ledger.changes], ledger.peak(columns)
        ledger = self._ledger()
        ledger.most_changes = float(changes.min())
        ledger.most_peak = float(peaks[changes == changes.min()].min())
        leaves = [
            Leaf(self.repinned(ledger, part.leaf.pools), part.leaf.dual, part.leaf.vector)
            for part, index in found
            if len(index)
        ]
        parts = [part for part in self._parts(ledger, leaves) if len(self._ends(ledger, part.labels[-1]))]
        least = min(float(self.locked(ledger, part.labels[-1].columns).min()) for part in parts)
        texts = [self._first_text(ledger, part, least) for part in parts]
        return min((one for one in texts if one is not None), key=lambda one: one.canonical())

    def _ledger(self) -> Ledger:
        return Ledger(self.frame, self.spaces[0].prices, ties=True)

    def _parts(self, ledger: Ledger, leaves: Sequence[Leaf]) -> list[_Part]:
        parts = []
        for leaf in leaves:
            spent = leaf.spent()
            labels = merged(ledger, leaf.pools, spent, self.budget + self.slack + leaf.dual.worth())
            parts.append(_Part(leaf, labels))
        return parts

    def _ends(self, ledger: Ledger, labels: Labels) -> list[int]:
        """Full labels within the budget."""
        need = ledger.needed(labels.columns, self.budget + self.slack)
        return [int(index) for index in np.flatnonzero(np.isfinite(need))]

    def locked(self, ledger: Ledger, columns: Floats) -> Floats:
        """Locked bytes of all nodes; infinite for labels that are not within the budget."""
        need = ledger.needed(columns, self.budget + self.slack)
        total: Floats = columns[:, ledger.locked].sum(axis=1) + need * len(self.frame.pinnable)
        return total

    def repinned(self, ledger: Ledger, pools: Sequence[Rows], also: Sequence[Rows] = ()) -> list[Rows]:
        """What can still win beside the smallest of all others, with all pins of it. ``also`` are further rows that the
        others may have."""
        others = [joined([rows, *also[c : c + 1]]) for c, rows in enumerate(pools)]
        least = [ledger.columns(rows, c).min(axis=0) for c, rows in enumerate(others)]
        return [self._all_pins(ledger, rows, c, least) for c, rows in enumerate(pools)]

    def _all_pins(self, ledger: Ledger, rows: Rows, component: int, least: Sequence[Floats]) -> Rows:
        space = self.spaces[component]
        rest = np.where(ledger.largest, -np.inf, 0.0)
        for other, columns in enumerate(least):
            rest = rest if other == component else ledger.joined(rest, columns)
        rows = rows.take(ledger.fit(ledger.joined(ledger.columns(rows, component), rest)))
        if self.frame.pins_scarce or not space.visits.stays or not bool((rows.shape >= 0).any()):
            return rows
        most = self.budget + self.slack - rest[ledger.times][-1]
        pinned = space.pinned(np.unique(rows.shape[rows.shape >= 0]))
        pinned = space.priced(pinned.take(pinned.times[:, -1] <= most))
        return joined([rows.take(rows.shape < 0), pinned.take(pinned.times[:, -1] <= most)])

    def _first_text(self, ledger: Ledger, part: _Part, least: float) -> Placement | None:
        """The selection that locks no more than ``least``, its entries as early in canonical text as can be."""
        pools, count = part.leaf.pools, len(part.leaf.pools)
        done = nothing = np.where(ledger.largest, -np.inf, 0.0)
        chosen: list[int] = []
        for component, rows in enumerate(pools):
            later = part.labels[count - 2 - component].columns if component < count - 1 else nothing[None, :]
            table = ledger.joined(ledger.columns(rows, component), done)
            possible = []
            for index in range(len(rows)):
                full = ledger.joined(later, table[index])
                if bool((ledger.fit(full) & (self.locked(ledger, full) <= least + 1)).any()):
                    possible.append(index)
            if not possible:
                return None
            space = self.spaces[component]
            index = min(possible, key=lambda i, s=space, r=rows: s.entry(r, i).canonical())  # type: ignore[misc]
            chosen.append(index)
            done = table[index]
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
