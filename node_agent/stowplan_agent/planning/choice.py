"""The one best placement among all ways to prefetch.

Each way breaks its own ties (`ties`); the ways are compared by the same numbers: fewest changes, fewest prefetches,
fewest device bytes, fewest locked bytes, text. A prefetch copies its bytes in every request, which costs nothing in the
model where it hides: so it must save time. Without this, all that hides behind something would be moved in and out for
a few bytes of a largest interval, on cards on which everything may stay for good.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan_agent.planning.behind import Load
from stowplan_agent.planning.branches import BranchSearch
from stowplan_agent.planning.head import HeadSpace
from stowplan_agent.planning.labels import Ledger
from stowplan_agent.planning.lane_load import LaneLoad
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.rows import ELASTIC, PREFETCH, Rows
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.ties import TieBreak
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord


class Ties(TieBreak):
    """The tie-breaks of one search, open pins of what is prefetched included."""

    def first(self) -> tuple[float, float]:
        """Fewest changes and prefetches, and fewest device bytes with so few."""
        ledger = Ledger(self.frame, self.spaces[0].prices, locked=True)
        columns = np.concatenate([leaf.labels.columns for leaf in self.search.leaves])
        columns = columns[np.isfinite(ledger.needed(columns, self.budget + self.slack))]
        changes, peaks = columns[:, ledger.changes], ledger.peak(columns)
        return float(changes.min()) + self.kept(), float(peaks[changes == changes.min()].min())

    def kept(self) -> float:
        """What the prefetches of current entries count, which are the same for all selections of the search."""
        return self.search.kept() if isinstance(self.search, BranchSearch) else 0.0

    def _entries(
        self, pools: Sequence[Rows], chosen: Sequence[int], need: float, room: float
    ) -> tuple[ComponentPlacement, ...]:
        """The entries, with ``need`` bytes a node divided among open pins: where they save most first."""
        pieces = []
        for component, (rows, index) in enumerate(zip(pools, chosen, strict=True)):
            if rows.shape[index] == ELASTIC:
                pieces += [(-one.worth, component, one.bytes) for one in self.spaces[component].curve.pieces]
            elif rows.shape[index] == PREFETCH and (load := self._load(component)) is not None:
                idle = self._idle(pools, chosen, component)
                pieces += [(-worth, component, bytes_) for worth, bytes_ in load.pieces(idle)]
        share: dict[int, float] = {}
        for _, component, bytes_ in sorted(pieces, key=lambda one: one[:2]):
            taken = min(bytes_, need)
            share[component] = share.get(component, 0.0) + taken
            need -= taken
        # What is in part a byte of several ranks takes whole ones where there is room.
        spare = max(room - sum(share.values()), 0.0) / max(len(share), 1)
        return tuple(self._entry(pools, chosen, c, share.get(c, 0.0), spare) for c in range(len(pools)))

    def _entry(
        self, pools: Sequence[Rows], chosen: Sequence[int], component: int, locked: float, spare: float
    ) -> ComponentPlacement:
        """The entry of one component, of which a node locks so many bytes where its pins are open, or a few more."""
        space, rows, index = self.spaces[component], pools[component], chosen[component]
        load = self._load(component) if rows.shape[index] == PREFETCH else None
        if not isinstance(load, LaneLoad):
            return space.entry(rows, index, locked)
        given = load.pins(self._idle(pools, chosen, component), locked, locked + spare)
        return space.offload(tuple(given[link] for link in space.visits.link_of), prefetch=True)

    def _load(self, component: int) -> Load | LaneLoad | None:
        """The loads of a prefetched component, if its pins are open."""
        assert isinstance(self.search, BranchSearch)
        return self.search.branch.open_loads.get(self.spaces[component].component.name, (None, None))[1]

    def _idle(self, pools: Sequence[Rows], chosen: Sequence[int], component: int) -> list[Floats]:
        """Seconds by lane in which the link is free behind what was chosen before a prefetched component."""
        assert isinstance(self.search, BranchSearch)
        head = self.search.branch.open_loads[self.spaces[component].component.name][0]
        for place, space in enumerate(self.spaces):
            if space.component.name == head and isinstance(space, HeadSpace):
                return space.idle(pools[place], chosen[place])
        return [np.zeros((1, 0))] * len(self.search.branch.lanes)


def best_of(record: CalibrationRecord, searches: Sequence[Search]) -> Placement:
    """The best placement of finished searches, all with the same best seconds."""
    ties = [Ties(search) for search in searches]
    firsts = [one.first() for one in ties]
    placements = [one.placement() for one, first in zip(ties, firsts, strict=True) if first == min(firsts)]
    return min(placements, key=lambda one: preferred(record, one))


def preferred(record: CalibrationRecord, placement: Placement) -> tuple[int, str]:
    """What decides between placements with as many changes, prefetches and device bytes; the least is best."""
    return sum(cost(record, placement).locked_bytes.values()), placement.canonical()
