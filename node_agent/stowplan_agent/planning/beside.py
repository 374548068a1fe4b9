"""The option space of one component behind which a finished placement prefetches others: what its reasons are about."""

from __future__ import annotations

from collections.abc import Mapping

from stowplan_agent.planning.behind import Behind
from stowplan_agent.planning.chains import chains_of
from stowplan_agent.planning.head import HeadSpace
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.price import load_seconds
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.timeline import Timeline


def beside_placed(space: Space, timeline: Timeline, layouts: Mapping[str, Layout]) -> Space:
    """The space of one component with the loads behind it that a placement has; it is not prefetched itself."""
    name, visits = space.component.name, space.visits
    early = frozenset(one for one, layout in layouts.items() if layout.prefetch and one != name)
    chains = tuple(chain for chain in chains_of(timeline, early) if chain.component == name)
    if not chains:
        return space
    ranks = range(len(visits.link_of))
    lanes: tuple[tuple[int, tuple[int, ...]], ...] = tuple((visits.link_of[rank], (rank,)) for rank in ranks)
    loads = [(o, tuple(load_seconds(layouts[o], r, visits.links[visits.link_of[r]]) for r in ranks)) for o in early]
    alike = len({(link, *(each[rank] for _, each in loads)) for rank, link in enumerate(visits.link_of)}) == 1
    if alike:
        lanes, loads = ((0, tuple(ranks)),), [(other, each[:1]) for other, each in loads]
    return HeadSpace(space, Behind(lanes, (), chains, tuple(loads)))
