"""The price of a plan with one entry swapped for another: what `cost` says of it, with nothing simulated twice.

An explanation asks for many placements that differ from the plan in one component. The runs of all other components
are those of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stowplan_agent.planning.layout import Layout, layout_of
from stowplan_agent.planning.links import RankLink, have_peers, links_of
from stowplan_agent.planning.price import StaySeconds, load_seconds, price_of, stay_seconds
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Cost
from stowplan_api.record import CalibrationRecord, Component, Run


class Swaps:
    """Prices of one plan's placement with other entries in it."""

    def __init__(
        self, record: CalibrationRecord, timeline: Timeline, placement: Placement, layouts: Sequence[Layout]
    ) -> None:
        self.record, self.timeline, self.placement = record, timeline, placement
        self.links, self.peers = links_of(record), have_peers(record)
        self.layouts = {one.name: layout for one, layout in zip(record.components, layouts, strict=True)}
        self._runs: dict[object, StaySeconds] = {}

    def price(self, entry: ComponentPlacement) -> Cost:
        """The same as `cost` of the placement with ``entry`` in it."""
        entries = tuple(entry if one.name == entry.name else one for one in self.placement.components)
        layout = layout_of(self.record.component(entry.name), entry, len(self.links), peers=self.peers)
        layouts = self.layouts | {entry.name: layout}
        return price_of(self.record, self.timeline, Placement(components=entries), layouts, self.links, self._stay)

    def _stay(
        self, component: Component, layout: Layout, run: Run, loads: bool, rank: int, link: RankLink
    ) -> StaySeconds:
        key = (component.name, id(run), link, *(ring.on(rank) for ring in layout.rings))
        if key not in self._runs:
            self._runs[key] = stay_seconds(component, layout, run, False, rank, link)
        return replace(self._runs[key], load=load_seconds(layout, rank, link)) if loads else self._runs[key]
