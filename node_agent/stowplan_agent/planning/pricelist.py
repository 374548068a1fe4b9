"""The prices of many placements: the same as `cost` of each, worked out together.

Placements of one record have most of their runs in common: entries that differ in lifetimes, in pins of what is not
streamed, or in other components run alike. Each run is simulated once, thousands side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from stowplan_agent.planning.lanes import lane_seconds
from stowplan_agent.planning.layout import Layout, layout_of
from stowplan_agent.planning.links import RankLink, have_peers, links_of
from stowplan_agent.planning.price import StaySeconds, load_seconds, pass_layers, price_of
from stowplan_agent.planning.ring import Layer, copy_seconds
from stowplan_agent.planning.timeline import timeline_of
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Cost
from stowplan_api.record import CalibrationRecord, Component, Run

CHUNK: Final = 10_000
"""Placements that are priced together."""

Key = tuple[object, ...]


def costs(record: CalibrationRecord, placements: Iterable[Placement]) -> Iterator[Cost]:
    """What `cost` says of each placement, in their order."""
    prices = PriceList(record)
    remaining = iter(placements)
    while chunk := list(islice(remaining, CHUNK)):
        yield from prices.of(chunk)


class PriceList:
    """Prices of one record that are known."""

    def __init__(self, record: CalibrationRecord) -> None:
        self.record = record
        self.timeline = timeline_of(record)
        self.links, self.peers = links_of(record), have_peers(record)
        self._layouts: dict[tuple[str, ComponentPlacement | None], Layout] = {}
        self._runs: dict[Key, tuple[float, float]] = {}
        """Seconds of all passes, and those in which copies keep the link busy."""

    def of(self, placements: list[Placement]) -> Iterator[Cost]:
        """The price of each of ``placements``."""
        together = [self._laid_out(placement) for placement in placements]
        self._simulate(together)
        for placement, layouts in zip(placements, together, strict=True):
            yield price_of(self.record, self.timeline, placement, layouts, self.links, self._stay)

    def _laid_out(self, placement: Placement) -> dict[str, Layout]:
        entries = {entry.name: entry for entry in placement.components}
        found = {}
        for component in self.record.components:
            key = (component.name, entries.get(component.name))
            if key not in self._layouts:
                self._layouts[key] = layout_of(component, key[1], len(self.links), peers=self.peers)
            found[component.name] = self._layouts[key]
        return found

    def _simulate(self, together: list[dict[str, Layout]]) -> None:
        """Simulate the runs that are new, those of the same layers side by side."""
        new: dict[Key, dict[Key, tuple[list[Layer], list[int]]]] = {}
        runs: dict[Key, tuple[Run, RankLink]] = {}
        for stay in (stay for course in self.timeline.courses for stay in course.stays if stay.component):
            component = self.record.component(str(stay.component))
            for rank, link in enumerate(self.links):
                alike: Key = (id(stay.run), link)
                runs[alike] = (stay.run, link)
                lanes = new.setdefault(alike, {})
                for layouts in together:
                    layout = layouts[component.name]
                    key = _key(layout, stay.run, rank, link)
                    if key not in self._runs and key not in lanes:
                        lanes[key] = pass_layers(component, layout, stay.run, rank, link)
        for alike, lanes in new.items():
            if lanes:
                self._side_by_side(*runs[alike], lanes)

    def _side_by_side(self, run: Run, link: RankLink, lanes: dict[Key, tuple[list[Layer], list[int]]]) -> None:
        layers = [layers for layers, _ in lanes.values()]
        seconds = [layer.seconds for layer in layers[0]]
        shape = (len(layers), len(seconds))
        rings = np.array([[layer.ring for layer in each] for each in layers], dtype=np.int64).reshape(shape).T
        copies = np.array([[layer.copy_seconds for layer in each] for each in layers]).reshape(shape).T
        swaps = None
        if link.ranks > 1:
            swaps = np.array([[layer.swap_seconds for layer in each] for each in layers]).reshape(shape).T
        most = max(len(slots) for _, slots in lanes.values())
        slots = np.array([[*each, *[2] * (most - len(each))] for _, each in lanes.values()], dtype=np.int64)
        taken = lane_seconds(
            run.passes,
            run.loose_seconds,
            seconds,
            rings.max(axis=1, initial=-1).tolist(),
            slots.reshape(len(layers), most).T,
            copies,
            rings >= 0,
            link.contention,
            swaps,
        )
        for key, each, total in zip(lanes, layers, taken.tolist(), strict=True):
            self._runs[key] = (total, copy_seconds(run.passes, each))

    def _stay(
        self, component: Component, layout: Layout, run: Run, loads: bool, rank: int, link: RankLink
    ) -> StaySeconds:
        seconds, copies = self._runs[_key(layout, run, rank, link)]
        return StaySeconds(load_seconds(layout, rank, link) if loads else 0.0, seconds, copies)


def _key(layout: Layout, run: Run, rank: int, link: RankLink) -> Key:
    return (id(run), link, *(ring.on(rank) for ring in layout.rings))
