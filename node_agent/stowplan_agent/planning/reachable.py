"""The best placement that safe moves lead to, among all ways to prefetch.

For each way (`branches`) the fastest end of its moves is looked for (`reach`), with the best one so far as the limit;
then the ways with an end as fast as the best break their ties like finished searches do (`choice`). Where moves lead
to is often far above the bound of a way, so `hoped` rules out most of them together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan_agent.planning.arrival import Arrival
from stowplan_agent.planning.branches import Branches, BranchSearch
from stowplan_agent.planning.choice import preferred
from stowplan_agent.planning.freed import left_out
from stowplan_agent.planning.hoped import Hoped, frames_on_the_way
from stowplan_agent.planning.reach import Reach
from stowplan_agent.planning.search import Search
from stowplan_api.placement import Placement


def reachable(branches: Branches, plain: Search) -> tuple[Placement, float] | None:
    """The best placement that moves lead to, and its seconds without what runs between components; None where there is
    none. ``plain`` is the finished search without prefetches."""
    setting = branches.setting
    vector = plain.dual.vector
    plain = branches.unmoved(setting.record)
    plain.dual.vector = vector
    reaches = [Reach(plain, frames_on_the_way(branches, frozenset()))]
    best = reaches[0].fastest()
    fewest = _fewest(reaches, best)
    early = Hoped(branches, vector, best, fewest).sets()
    ways = branches.bounds(setting.record, plain, moved=True) if early else ()
    for bound, branch in sorted(ways, key=lambda one: one[0]):
        plain.known = best
        if bound > plain.budget():
            break
        if branch.early not in early:
            continue
        if plain.frame.pins_scarce:
            left_out(branch)
        search = BranchSearch(branch, setting.frame_with(setting.record, branch.early), setting.between)
        search.known, search.dual.vector = branches.enough(best, fewest, branch.pins), vector
        if bound > search.budget():
            continue
        reach = Reach(search, frames_on_the_way(branches, branch.early))
        best = min(best, reach.fastest())
        if reach.ends:
            reaches.append(reach)
            fewest = _fewest(reaches, best)
    if not np.isfinite(best):
        return None
    firsts = [(first, reach) for reach in reaches if (first := reach.first()) is not None]
    least = min(first for first, _ in firsts)
    placements = [Arrival(reach, first).placement() for first, reach in firsts if first == least]
    return min(placements, key=lambda one: preferred(setting.record, one)), best


def _fewest(reaches: Sequence[Reach], best: float) -> float:
    """Fewest changes and prefetches of the ends as fast as the ``best``, which all of them are told."""
    for reach in reaches:
        reach.search.best = best
    return min((first[0] for reach in reaches if (first := reach.first()) is not None), default=np.inf)
