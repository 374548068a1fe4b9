"""One way to stream a component, with the lifetimes of its parts, and all ways to pin it.

A shape fixes the device bytes; pins only trade seconds for locked host memory. So the bytes of a shape are laid out
once for each pin count, and never again for each rank or lifetime.
"""

from __future__ import annotations

from dataclasses import replace

from stowplan_agent.planning.layout import Layout, layout_of
from stowplan_agent.planning.options import Lives, Option, Stream, layerwise_entry
from stowplan_agent.planning.pins import Choice, PinSearch, Vector
from stowplan_agent.planning.visits import StayTimes, Visits
from stowplan_api.placement import ComponentPlacement


class Shape:
    """A Layerwise entry without its pins."""

    def __init__(self, visits: Visits, streams: tuple[Stream, ...], lives: Lives) -> None:
        self.visits = visits
        self.streams = streams
        self.lives = lives
        self.most: Vector = tuple(
            len(stream.streamed) + (stream.resident if life == "Forward" else 0)
            for stream, life in zip(streams, lives.groups, strict=True)
        )
        """Layers that keep a host copy, one number a group."""
        self._layouts: dict[Vector, Layout] = {}
        self._times: dict[tuple[int, Vector], StayTimes] = {}

    def bound(self) -> Option:
        """What no pins of this shape improve on: the bytes of pinning nothing, at most the seconds of pinning all."""
        classes = len(self.visits.links)
        full = self._together((self.most,) * classes)
        none = ((0,) * len(self.most),) * classes
        return Option(self._together(none), self.visits.least(full), lambda: self._entry(none))

    def options(self, *, scarce: bool, tolerance: float) -> tuple[list[Option], set[str]]:
        """The options of this shape, one for each choice of pins that is worth it, and what was left out."""
        search = PinSearch(
            self.most,
            len(self.visits.links),
            self.visits.shares,
            self._price,
            lambda vector: self._layout(vector).locked[0],
            scarce=scarce,
            tolerance=tolerance,
        )
        return [self._option(choice) for choice in search.choices()], search.left_out

    def _option(self, choice: Choice) -> Option:
        return Option(self._together(choice.vectors), choice.seconds, lambda: self._entry(choice.vectors))

    def _price(self, link: int, vector: Vector) -> StayTimes:
        key = (link, vector)
        if key not in self._times:
            self._times[key] = self.visits.times(self._layout(vector), 0, link)
        return self._times[key]

    def _layout(self, vector: Vector) -> Layout:
        """The layout of a single rank with these pins."""
        if vector not in self._layouts:
            self._layouts[vector] = layout_of(self.visits.component, self._entry_of([vector]), 1)
        return self._layouts[vector]

    def _together(self, vectors: tuple[Vector, ...]) -> Layout:
        """The layout of all ranks, from that of each link class."""
        ranks = [self._layout(vectors[link]) for link in self.visits.link_of]
        rings = tuple(
            replace(ring, pinned=tuple(each.rings[index].pinned[0] for each in ranks))
            for index, ring in enumerate(ranks[0].rings)
        )
        return replace(
            ranks[0],
            host=tuple(each.host[0] for each in ranks),
            locked=tuple(each.locked[0] for each in ranks),
            loads=tuple(each.loads[0] for each in ranks),
            rings=rings,
        )

    def _entry(self, vectors: tuple[Vector, ...]) -> ComponentPlacement:
        return self._entry_of([vectors[link] for link in self.visits.link_of])

    def _entry_of(self, ranks: list[Vector]) -> ComponentPlacement:
        pins = tuple(tuple(vector[group] for vector in ranks) for group in range(len(self.streams)))
        return layerwise_entry(self.visits.component, self.streams, self.lives, pins)
