"""An end of moves that is found quickly: from the current entries, the move that gains most, as long as one gains.

It proves nothing. But `reach` goes through all ends that are not slower than the best one known, and these are many as
long as only the seconds of the current placement are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.planning.rows import CURRENT, Rows
from stowplan_agent.planning.search import Search


def gained(search: Search, current: Sequence[Rows], seconds: float) -> float:
    """Seconds of such an end, not above ``seconds``, which is what the ``current`` entries take.

    Every component moves at most once, each beside the entries of the others of the moment, so all of it can be done.
    Nothing is prefetched on the way.
    """
    scarce = search.frame.pins_scarce
    pools = []
    for space in search.spaces:
        rows = space.coarse(scarce=scarce)
        rows = rows.take(rows.shape != CURRENT)
        # Where pins are scarce, open ones would be divided anew by each move that follows.
        pools.append(space.gridded(rows, proves=False) if scarce else rows)
    before = search.best, search.chosen
    chosen, left = list(current), set(range(len(current)))
    while left:
        tried = []
        for component in sorted(left):
            search.best, search.chosen = seconds, list(chosen)
            if search.moved(pools[component], component):
                tried.append((search.best, component, search.chosen[component]))
        if not tried:
            break
        seconds, component, row = min(tried, key=lambda one: one[:2])
        chosen[component] = row
        left.remove(component)
    search.best, search.chosen = before
    return seconds
