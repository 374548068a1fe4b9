"""The best placement that safe moves lead to, among all ways to prefetch.

For each way (`branches`) the fastest end of its moves is looked for (`reach`), with the best one so far as the limit;
then the ways with an end as fast as the best break their ties like finished searches do (`choice`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stowplan_agent.planning.branches import Branches, BranchSearch
from stowplan_agent.planning.choice import preferred
from stowplan_agent.planning.frame import Frame
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
    reaches = [Reach(plain, _frames(branches, frozenset()))]
    best = reaches[0].fastest()
    for bound, branch in sorted(branches.bounds(setting.record, plain, moved=True), key=lambda one: one[0]):
        plain.known = best
        if bound > plain.budget():
            break
        search = BranchSearch(branch, setting.frame_with(setting.record, branch.early), setting.between)
        search.known, search.dual.vector = best, vector
        reach = Reach(search, _frames(branches, branch.early))
        best = min(best, reach.fastest())
        reaches.append(reach)
    if not np.isfinite(best):
        return None
    for reach in reaches:
        reach.search.best = best
    firsts = [(first, reach) for reach in reaches if (first := reach.first()) is not None]
    least = min(first for first, _ in firsts)
    placements = [reach.placement(first) for first, reach in firsts if first == least]
    return min(placements, key=lambda one: preferred(setting.record, one)), best


def _frames(branches: Branches, early: frozenset[str]) -> Callable[[int], Frame] | None:
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
