"""The option spaces of a component that is prefetched: one row, whatever else is chosen; and of one that may be."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Final

import numpy as np

from stowplan_agent.planning.chains import run_alone
from stowplan_agent.planning.price import load_seconds
from stowplan_agent.planning.rows import HOST, LOCKED, OWN, PREFETCH, PREFETCH_PINNED, Rows, joined
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.timeline import Timeline

Pins = str
"""Pinned bytes of what is prefetched: ``Open`` is still to be chosen, the same on all ranks; ``Current`` is that of the
current entry; ``All`` and ``Nothing`` are given; and so is one character a link class, 1 for all and 0 for nothing."""
GIVEN: Final[tuple[Pins, ...]] = ("All", "Nothing")
MOST_SLOPES: Final = 16
"""Sums of shares up to which pins stay open."""
MOST_UNLIKE: Final = 24
"""The same of sums of shares and sets of unlike links."""
SAME: Final = 12
"""Digits of a share of a request that count."""


class PrefetchSpace(Space):
    """The row of a component that is prefetched. ``added`` are seconds by price: of its loads, as far as they do not
    depend on another component. ``free`` says that its pins lock nothing."""

    def __init__(self, plain: Space, pins: Pins, added: Floats, *, free: bool = False) -> None:
        super().__init__(plain.visits, plain.frame)
        self.pricer, self.left_out = plain.pricer, plain.left_out
        self.prices, self.current = plain.prices, plain.current
        self.pinned_by, self.added, self.free = pins, added, free

    @cached_property
    def _whole(self) -> Rows:
        """The one row."""
        run = self.resident_seconds()
        if self.pinned_by == "Current" and self.current is not None:
            row = self.current_row(self.current)
            row.times[0] = run + self.added
            return row
        total = self.component.total_bytes()
        pins = np.array([total * one for one in pinned(self.pinned_by, len(self.visits.links))], dtype=np.int64)
        held = np.zeros((1, LOCKED + len(self.frame.pinnable)))
        held[0, OWN] = held[0, HOST] = total
        held[0, LOCKED:] = 0.0 if self.free else self.frame.ranks_of @ pins
        row = self._single(held, run, PREFETCH if self.pinned_by == "Open" else PREFETCH_PINNED, pins)
        row.times[0] += self.added
        return row

    @property
    def _layered(self) -> bool:
        return False


class EasySpace(Space):
    """All rows of a component, and the one with a prefetch whose loads depend on no other component.

    ``added`` are the seconds of its loads, by price.
    """

    def __init__(self, plain: Space, added: Floats) -> None:
        super().__init__(plain.visits, plain.frame)
        self.pricer, self.left_out = plain.pricer, plain.left_out
        self.prices, self.current, self.plain = plain.prices, plain.current, plain
        self.early = PrefetchSpace(plain, "Open", added)

    @cached_property
    def _whole(self) -> Rows:
        """The rows without layers."""
        return joined([self.early.whole(), self.plain.whole()])

    @property
    def smallest(self) -> Rows:
        """Rows that lock nothing: an Offload takes no more than a prefetch."""
        return self.plain.smallest

    @property
    def long(self) -> bool:
        """Whether it pays not to make all rows."""
        return self.plain.long

    @property
    def least(self) -> tuple[float, float]:
        """Seconds that no row is below, and bytes that each holds for good."""
        return min(float(self.early.whole().times[:, -1].min()), self.plain.least[0]), 0.0

    @property
    def sketch(self) -> Rows:
        """A few rows that stand for many."""
        return self.plain.sketch

    def _quick(self, most: float, room: float) -> Rows:
        return joined([self.early.whole(), self.plain.quick(most, room)])

    def _all(self, *, scarce: bool) -> Rows:
        early = self.early.whole()
        rows = joined([early, *self.plain.parts(scarce=scarce)])
        self.plain.keep(rows.after(len(early)), scarce=scarce)
        return rows


def hidden(plain: Space) -> PrefetchSpace:
    """A row that no prefetch of a component is better than: it locks nothing, and all of its loads hide."""
    return PrefetchSpace(plain, "Nothing", np.zeros(len(plain.prices)))


class HiddenSpace(EasySpace):
    """All rows of a component, and that one."""

    def __init__(self, plain: Space) -> None:
        super().__init__(plain, np.zeros(len(plain.prices)))
        self.early = hidden(plain)


def can_gain(space: Space, timeline: Timeline, intervals: int) -> bool:
    """Whether a prefetch of the component may be better than anything else it can be.

    Not so where nothing runs before it: then it is an Offload that holds as much or more. Nor where it would be held in
    every interval: then it is a Resident with a load.
    """
    stays = [stay for _, stay in space.visits.stays]
    before = {(course.workload, stay.interval): stay for course in timeline.courses for stay in course.stays}
    hides = any(
        stay.loads and stay.before is not None and run_alone(before[course.workload, stay.before]) > 0
        for course in timeline.courses
        for stay in course.stays
        if stay.component == space.component.name
    )
    held = {stay.interval for stay in stays} | timeline.before[space.component.name]
    return (
        hides
        and space.component.total_bytes() > 0
        and space.fixed in (None, "Offload")
        and not (space.fixed is None and len(held) == intervals)
    )


def slopes(space: Space) -> list[float] | None:
    """Seconds that a locked byte saves where some of the component's loads are exposed; None where they are too many.

    Which loads are exposed depends on what stands before each of them, so these are the sums of all sets of shares.
    """
    sums = {0.0}
    for share in sorted(share for share, stay in space.visits.stays if stay.loads):
        sums |= {round(one + share, SAME) for one in sums}
        if len(sums) > MOST_SLOPES:
            return None
    curve = space.curve
    if len(space.visits.links) == 1:
        rate = curve.most / (curve.longest - curve.shortest) if curve.pieces else 0.0
        return [one / rate for one in sums if rate and one]
    # Of unlike links those pin more whose loads are the last to end: any set of them.
    rates = {0.0}
    for rate in curve.rates:
        rates |= {one + rate for one in rates}
    found = [one / rate for one in sums for rate in rates if rate and one]
    return found if len(found) <= MOST_UNLIKE else None


def is_given(pins: Pins) -> bool:
    """Whether pins are neither open nor those of the current entry."""
    return pins not in ("Open", "Current")


def pinned(pins: Pins, links: int) -> tuple[bool, ...]:
    """Whether all is pinned, by link class."""
    if is_given(pins) and pins not in GIVEN:
        return tuple(one == "1" for one in pins)
    return (pins == "All",) * links


def mixed(links: int) -> list[Pins]:
    """All given pins of some link classes and not of others."""
    every = ["".join(each) for each in product("10", repeat=links)]
    return every[1:-1]


def load_by_rank(space: Space, pins: Pins) -> tuple[float, ...]:
    """Seconds of a load on each rank, with given pins; with open ones, those of a load with the fewest."""
    ranks = range(len(space.visits.link_of))
    entry = space.current if pins == "Current" else None
    if entry is None:
        given = [space.component.total_bytes() * one for one in pinned(pins, len(space.visits.links))]
        entry = space.offload(tuple(given[link] for link in space.visits.link_of), prefetch=True)
    layout = space.visits.layout(entry)
    return tuple(load_seconds(layout, rank, space.visits.links[space.visits.link_of[rank]]) for rank in ranks)
