"""Which layers that keep a host copy are pinned, on each rank: the choices worth pricing, and no others.

More pins are never slower: every end in the recurrence grows with the seconds of each copy, and a pinned copy takes no
longer than a pageable one. Ranks with the same link therefore get the same pins (the slowest counts, the others would
lock memory for nothing), and ranks with different links each get the fewest pins that keep up with the slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple

from stowplan_agent.planning.visits import StayTimes, weighted

MOST_VECTORS: Final = 200
"""Pin counts of all groups together up to which each combination is priced; with one group every count always is."""
MOST_PAIRS: Final = 2000
"""Combinations of link classes up to which each is priced, where several intervals depend on pins."""

Vector = tuple[int, ...]
"""Pinned layers, one number a group."""


class Choice(NamedTuple):
    """Pins of each link class, and the seconds of each stay (the slowest class)."""

    vectors: tuple[Vector, ...]
    seconds: float


class Priced(NamedTuple):
    """Pins of one link class with its seconds and locked bytes."""

    vector: Vector
    times: StayTimes
    locked: int


class PinSearch:
    """The pins of one way to stream a component, for all link classes.

    ``most`` is the number of layers with a host copy, one a group; ``price(link_class, vector)`` gives seconds a stay,
    ``locked(vector)`` bytes a rank, ``shares`` the weight of each stay. ``scarce`` says that pins are contended for;
    if they are not, only what is within ``tolerance`` seconds of pinning all can win a tie.
    """

    def __init__(
        self,
        most: Vector,
        classes: int,
        shares: Sequence[float],
        price: Callable[[int, Vector], StayTimes],
        locked: Callable[[Vector], int],
        *,
        scarce: bool,
        tolerance: float,
    ) -> None:
        self.most = most
        self.classes = classes
        self.shares = shares
        self.price = price
        self.locked = locked
        self.scarce = scarce
        self.tolerance = tolerance
        self.left_out: set[str] = set()

    def choices(self) -> list[Choice]:
        """Every choice that no other one beats, the fewest pins first."""
        slowest = tuple(
            max(times) for times in zip(*(self.price(c, self.most) for c in range(self.classes)), strict=True)
        )
        ladders = [self._ladder(link_class, slowest) for link_class in range(self.classes)]
        if self.classes == 1:
            return [Choice((one.vector,), weighted(self.shares, one.times)) for one in ladders[0]]
        size = 1
        for ladder in ladders:
            size *= len(ladder)
        if len(self.shares) > 1 and size <= MOST_PAIRS:
            return _best(self._together(pins) for pins in product(*ladders))
        if len(self.shares) > 1:
            self.left_out.add("ranks with different links are balanced over all intervals together")
        return self._balanced(ladders)

    def _ladder(self, link_class: int, slowest: StayTimes) -> list[Priced]:
        """Pins of one class from few to many, without those that lock more and are no faster."""
        vectors = self._vectors() if self.scarce else self._descent(link_class, slowest)
        priced = [Priced(v, self.price(link_class, v), self.locked(v)) for v in vectors]
        priced.sort(key=lambda one: (one.locked, one.times, one.vector))
        kept: list[Priced] = []
        for one in priced:
            if not any(all(a <= b for a, b in zip(other.times, one.times, strict=True)) for other in kept):
                kept.append(one)
        return kept

    def _vectors(self) -> Iterable[Vector]:
        size = 1
        for most in self.most:
            size *= most + 1
        if size <= MOST_VECTORS or len(self.most) == 1:
            return product(*(range(most + 1) for most in self.most))
        self.left_out.add("groups are pinned one after the other, in steps of an eighth of each")
        steps: set[Vector] = set()
        for index, most in enumerate(self.most):
            for eighth in range(9):
                count = most * eighth // 8
                steps.add(self.most[:index] + (count,) + (0,) * (len(self.most) - index - 1))
                steps.add((0,) * index + (count,) + self.most[index + 1 :])
        return sorted(steps)

    def _descent(self, link_class: int, slowest: StayTimes) -> Iterable[Vector]:
        """All pins within the tolerance of pinning everything: reached by unpinning one layer at a time."""
        limit = weighted(self.shares, slowest) + self.tolerance
        found = {self.most}
        waiting = [self.most]
        while waiting:
            vector = waiting.pop()
            for index, count in enumerate(vector):
                fewer = (*vector[:index], count - 1, *vector[index + 1 :])
                if not count or fewer in found:
                    continue
                times = (max(pair) for pair in zip(self.price(link_class, fewer), slowest, strict=True))
                if weighted(self.shares, tuple(times)) <= limit:
                    found.add(fewer)
                    waiting.append(fewer)
        return sorted(found)

    def _together(self, pins: tuple[Priced, ...]) -> tuple[Choice, tuple[int, ...]]:
        times = tuple(max(one) for one in zip(*(each.times for each in pins), strict=True))
        return Choice(tuple(one.vector for one in pins), weighted(self.shares, times)), tuple(p.locked for p in pins)

    def _balanced(self, ladders: list[list[Priced]]) -> list[Choice]:
        """For each time that some class reaches, the fewest pins with which every class reaches it."""
        goals = sorted({weighted(self.shares, one.times) for ladder in ladders for one in ladder}, reverse=True)
        choices: list[tuple[Choice, tuple[int, ...]]] = []
        for goal in goals:
            pins = [next((p for p in ladder if weighted(self.shares, p.times) <= goal), None) for ladder in ladders]
            chosen = tuple(one for one in pins if one is not None)
            if len(chosen) == len(ladders):
                choices.append(self._together(chosen))
        return _best(choices)


def _best(choices: Iterable[tuple[Choice, tuple[int, ...]]]) -> list[Choice]:
    kept: list[tuple[Choice, tuple[int, ...]]] = []
    for choice, locked in sorted(choices, key=lambda one: (sum(one[1]), one[0].seconds, one[0].vectors)):
        beaten = any(
            other.seconds <= choice.seconds and all(a <= b for a, b in zip(less, locked, strict=True))
            for other, less in kept
        )
        if not beaten:
            kept.append((choice, locked))
    return [choice for choice, _ in kept]
