"""All intervals of one component, over all workloads, and the links that its ranks copy over: what prices its options.

As long as nothing is prefetched, the seconds of a component depend on no other component, so they are worked out here
once and serve every combination.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.planning.layout import Layout, layout_of
from stowplan_agent.planning.links import have_peers, links_of
from stowplan_agent.planning.price import load_seconds, stay_seconds
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import CalibrationRecord, Component

StayTimes = tuple[float, ...]
"""Seconds, one number for each stay of the component in each workload."""


def weighted(shares: Sequence[float], times: Sequence[float]) -> float:
    """Sum of ``times``, each times its share."""
    return sum(share * seconds for share, seconds in zip(shares, times, strict=True))


class Visits:
    """The stays of one component. Ranks with equal links are one link class: they always take the same time."""

    def __init__(self, record: CalibrationRecord, timeline: Timeline, component: Component) -> None:
        self.component = component
        self.stays = [
            (course.share, stay)
            for course in timeline.courses
            for stay in course.stays
            if stay.component == component.name
        ]
        self.shares = [share for share, _ in self.stays]
        links = links_of(record)
        self.links = list(dict.fromkeys(links))
        self.link_of = [self.links.index(link) for link in links]
        """Link class of each rank."""
        self.peers = have_peers(record)
        """Whether ranks have one host copy and swap; then they are one link class."""
        self.loads = sum(share for share, stay in self.stays if stay.loads)
        """How often a request brings the component in, averaged over workloads."""
        self._runs: dict[object, float] = {}

    def layout(self, entry: ComponentPlacement | None) -> Layout:
        """The layout of the component under an entry, on these ranks."""
        return layout_of(self.component, entry, len(self.link_of), peers=self.peers)

    def times(self, layout: Layout, rank: int, link: int) -> StayTimes:
        """Seconds of each stay over a link of class ``link``, with what ``layout`` says of the given rank."""
        return tuple(
            (load_seconds(layout, rank, self.links[link]) if stay.loads else 0.0) + self._run(index, layout, rank, link)
            for index, (_, stay) in enumerate(self.stays)
        )

    def seconds(self, layout: Layout) -> float:
        """Part of a request, averaged over workloads; the slowest rank of each stay counts."""
        ranks = [self.times(layout, rank, link) for rank, link in enumerate(self.link_of)]
        return weighted(self.shares, [max(times) for times in zip(*ranks, strict=True)])

    def _run(self, index: int, layout: Layout, rank: int, link: int) -> float:
        """Seconds of all passes. Lifetimes do not matter to them: options that differ only there share a simulation."""
        key = (index, link, tuple(ring.on(rank) for ring in layout.rings))
        if key not in self._runs:
            run = self.stays[index][1].run
            self._runs[key] = stay_seconds(self.component, layout, run, False, rank, self.links[link]).run
        return self._runs[key]
