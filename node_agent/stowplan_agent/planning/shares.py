"""Pins of ranks with different links: each gets the fewest pins that keep up with the slowest.

More pins are never slower: every end in the recurrence grows with the seconds of each copy, and a pinned copy takes no
longer than a pageable one. Ranks with the same link get the same pins (the slowest counts, the others would lock memory
for nothing), so they are one class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple

from stowplan_agent.planning.visits import StayTimes, weighted

MOST_PAIRS: Final = 2000
"""Combinations of link classes up to which each is priced, where several intervals depend on pins."""

Vector = tuple[int, ...]
"""Pinned layers, one number a group."""


class Choice(NamedTuple):
    """Pins of each link class, and the seconds of the slowest class, averaged over workloads."""

    vectors: tuple[Vector, ...]
    seconds: float


class Priced(NamedTuple):
    """Pins of one link class with its seconds and locked bytes."""

    vector: Vector
    times: StayTimes
    locked: float


class ShareSearch:
    """The pins of one way to stream a component, for all link classes.

    ``vectors`` are the pins to choose from; ``price(link_class, vector)`` gives seconds a stay, ``locked(vector)``
    bytes a rank, ``shares`` the weight of each stay.
    """

    def __init__(
        self,
        vectors: Sequence[Vector],
        classes: int,
        shares: Sequence[float],
        price: Callable[[int, Vector], StayTimes],
        locked: Callable[[Vector], float],
    ) -> None:
        self.vectors = vectors
        self.classes = classes
        self.shares = shares
        self.price = price
        self.locked = locked
        self.left_out: set[str] = set()

    def choices(self) -> list[Choice]:
        """Every choice that no other one beats, the fewest pins first."""
        ladders = [self._ladder(link_class) for link_class in range(self.classes)]
        size = 1
        for ladder in ladders:
            size *= len(ladder)
        if len(self.shares) > 1 and size <= MOST_PAIRS:
            return _best(self._together(pins) for pins in product(*ladders))
        if len(self.shares) > 1:
            self.left_out.add("ranks with different links are balanced over all intervals together")
        return self._balanced(ladders)

    def _ladder(self, link_class: int) -> list[Priced]:
        """Pins of one class from few to many, without those that lock more and are no faster."""
        priced = [Priced(v, self.price(link_class, v), self.locked(v)) for v in self.vectors]
        priced.sort(key=lambda one: (one.locked, one.times, one.vector))
        kept: list[Priced] = []
        for one in priced:
            if not any(all(a <= b for a, b in zip(other.times, one.times, strict=True)) for other in kept):
                kept.append(one)
        return kept

    def _together(self, pins: tuple[Priced, ...]) -> tuple[Choice, tuple[float, ...]]:
        times = tuple(max(one) for one in zip(*(each.times for each in pins), strict=True))
        return Choice(tuple(one.vector for one in pins), weighted(self.shares, times)), tuple(p.locked for p in pins)

    def _balanced(self, ladders: list[list[Priced]]) -> list[Choice]:
        """For each time that some class reaches, the fewest pins with which every class reaches it."""
        goals = sorted({weighted(self.shares, one.times) for ladder in ladders for one in ladder}, reverse=True)
        choices: list[tuple[Choice, tuple[float, ...]]] = []
        for goal in goals:
            pins = [next((p for p in ladder if weighted(self.shares, p.times) <= goal), None) for ladder in ladders]
            chosen = tuple(one for one in pins if one is not None)
            if len(chosen) == len(ladders):
                choices.append(self._together(chosen))
        return _best(choices)


def _best(choices: Iterable[tuple[Choice, tuple[float, ...]]]) -> list[Choice]:
    kept: list[tuple[Choice, tuple[float, ...]]] = []
    for choice, locked in sorted(choices, key=lambda one: (sum(one[1]), one[0].seconds, one[0].vectors)):
        beaten = any(
            other.seconds <= choice.seconds and all(a <= b for a, b in zip(less, locked, strict=True))
            for other, less in kept
        )
        if not beaten:
            kept.append((choice, locked))
    return [choice for choice, _ in kept]
