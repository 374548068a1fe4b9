"""Which sets of components may be worth a prefetch where an answer must be reached by moves.

Moves are looked for as if a prefetch locked nothing, were hidden whole, slowed nothing before it, and (where it is not
asked for, but only allowed) took no room there. So the moves of every way to prefetch are among them, step by step
within limits, with no more seconds and no more changes; one look bounds many ways.

- If a set must be prefetched, and others may be, and nothing ends within the budget: no way with these has the answer.
- If nothing must be, and no end within the budget that `Reach` keeps has a prefetch: no way with a prefetch has the
  answer. A label that is dropped on the way is nowhere better than a kept one with the same components moved, seconds
  and changes among its columns, and a prefetch counts for a part of a change. So for each end with a prefetch there is
  one without, which is therefore real, as fast, and the first of both by the tie-breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stowplan_agent.planning.branches import Branches
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.prefetched import HiddenSpace, hidden
from stowplan_agent.planning.reach import UNMOVED, Reach
from stowplan_agent.planning.rows import PREFETCH_PINNED
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats


class Hoped:
    """Looks at many ways at once, for an end that is better than one of ``best`` seconds with the ``fewest`` changes;
    ``vector`` are prices as in `Dual`."""

    def __init__(self, branches: Branches, vector: Floats, best: float, fewest: float) -> None:
        self.branches, self.vector, self.best, self.fewest = branches, vector, best, fewest

    def sets(self) -> set[frozenset[str]]:
        """All sets of which a way to prefetch may have the answer; every set where something is prefetched now."""
        names, nothing = self.branches.names, frozenset[str]()
        if self.branches.current:
            return set(_supersets(nothing, names))
        if not names or not self._prefetches(nothing, names):
            return set()
        return set(self._hopeful(nothing, names))

    def _hopeful(self, must: frozenset[str], may: Sequence[str]) -> Iterator[frozenset[str]]:
        for place, name in enumerate(may):
            more, rest = must | {name}, may[place + 1 :]
            if self._ends(more, rest):
                yield more
                yield from self._hopeful(more, rest)

    def _ends(self, must: frozenset[str], may: Sequence[str]) -> bool:
        """Whether anything ends within the budget if ``must`` are prefetched and ``may`` may be."""
        return bool(np.isfinite(self._reach(must, may).search.best))

    def _prefetches(self, must: frozenset[str], may: Sequence[str]) -> bool:
        """Whether anything that ends within the budget has a prefetch."""
        reach = self._reach(must, may)
        ledger, budget = reach.search.ledger, reach.search.budget()
        for _, labels in reach.ends:
            early = np.zeros(len(labels), dtype=np.bool_)
            for rows, chosen in zip(reach.pools, labels.rows.T, strict=True):
                moved = np.flatnonzero(chosen != UNMOVED)
                early[moved] |= rows.shape[chosen[moved]] == PREFETCH_PINNED
            if np.isfinite(ledger.needed(labels.columns[early], budget)).any():
                return True
        return False

    def _reach(self, must: frozenset[str], may: Sequence[str]) -> Reach:
        setting = self.branches.setting
        spaces: list[Space] = []
        for space in setting.spaces:
            name = space.component.name
            spaces.append(hidden(space) if name in must else HiddenSpace(space) if name in may else space)
        search = Search(spaces, setting.frame_with(setting.record, must), setting.between)
        # Nothing prefetches now, so each prefetch is a move; and what is looked for has one at least.
        given = dict.fromkeys(must or may[:1], "Open")
        search.known, search.dual.vector = self.branches.enough(self.best, self.fewest, given), self.vector
        reach = Reach(search, frames_on_the_way(self.branches, must))
        reach.fastest()
        return reach


def _supersets(must: frozenset[str], may: Sequence[str]) -> Iterator[frozenset[str]]:
    for place, name in enumerate(may):
        yield must | {name}
        yield from _supersets(must | {name}, may[place + 1 :])


def frames_on_the_way(branches: Branches, early: frozenset[str]) -> Callable[[int], Frame] | None:
    """The frame while some components have moved to a way in which ``early`` are prefetched."""
    setting, current = branches.setting, branches.current
    if not early and not current:
        return None
    names = [space.component.name for space in setting.spaces]
    known: dict[frozenset[str], Frame] = {}

    def frame(moved: int) -> Frame:
        now = frozenset(name for place, name in enumerate(names) if name in (early if moved >> place & 1 else current))
        if now not in known:
            known[now] = setting.frame_with(setting.record, now)
        return known[now]

    return frame
