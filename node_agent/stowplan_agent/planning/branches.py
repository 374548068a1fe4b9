"""All ways to prefetch, searched one after the other, each with the best of all so far as its limit.

The way in which nothing is prefetched comes first. The prices of its limits bound every other way at once: a way takes
at least the cheapest row of each component that it does not prefetch, what its prefetches cost, and the room that they
take away. Most ways end there. The others are searched like the first, for something as fast as the best known; so the
proof is the same for all: no label within the budget is left anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stowplan_agent.planning.bounded import ROUNDING, TOLERANCE
from stowplan_agent.planning.branch import Branch
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.freed import Freed
from stowplan_agent.planning.prefetched import Pins
from stowplan_agent.planning.rows import A_PREFETCH
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.ways import Ways
from stowplan_api.record import CalibrationRecord


class BranchSearch(Search):
    """The search of one way to prefetch."""

    def __init__(self, branch: Branch, frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(branch.spaces, frame, between, also)
        self.branch = branch

    def kept(self) -> float:
        """What the prefetches of current entries count, which are the same for all selections of the way."""
        return A_PREFETCH * sum(each == "Current" for each in self.branch.pins.values())

    def fewest_changes(self) -> float:
        """Of the selections as fast as the best one here: fewest changes and prefetches."""
        return super().fewest_changes() + self.kept()


@dataclass(frozen=True, slots=True)
class Searched:
    """Finished searches."""

    plain: Search
    """Without prefetches, whether or not it has a best selection."""
    best_ones: list[Search]
    """Those with a best selection."""
    best: float
    """Seconds of the best selections, without what runs between components."""
    all: dict[int, Search]
    """All of them, by the identity of their branch."""


class Branches(Ways):
    """The ways to prefetch of a setting. What is known of them serves every size of card."""

    def searched(
        self,
        record: CalibrationRecord,
        near: Searched | None = None,
        known: float = np.inf,
        also: Sequence[CalibrationRecord] = (),
    ) -> Searched | None:
        """What is as fast as the best there is, on the card and node of ``record``; None where nothing fits.

        ``also`` are records of which this is asked next, the same with looser limits; ``near`` is then what was found
        for the first. What takes longer than ``known`` seconds is not looked for.
        """
        branch = self.nothing
        plain = self.begun(branch, record, also)
        if near is not None and near.plain.wide is not None:
            plain.again(near.plain, known)
        else:
            plain.known = known
            if not plain.run(near.plain.chosen if near else ()):
                return None
        searches: dict[int, Search] = {id(branch): plain}
        freed = self.freed(record, near.all if near else {}, also)
        found: list[Search] = [plain]
        best = min(known, plain.best)
        for branch in self.worth_a_search(record, plain, freed):
            plain.known = best
            enough = self.enough(best, min((one.fewest_changes() for one in found), default=np.inf), branch.pins)
            if not freed.hopeful(branch, plain, enough):
                continue
            search = searches[id(branch)] = self.begun(branch, record, also)
            before = near.all.get(id(branch)) if near else None
            if before is None or before.wide is None:
                better = search.beside(enough, plain.dual.vector)
            else:
                better = search.again(before, enough)
            if better:
                found.append(search)
                best = min(best, search.best)
                for each in found:
                    each.known = best
                    each.settle()
        for each in found:
            each.best = best
            each.settle()
        freed.say(best)
        return Searched(plain, [each for each in found if each.leaves], best, searches | freed.searches)

    def worth_a_search(self, record: CalibrationRecord, plain: Search, freed: Freed) -> Iterator[Branch]:
        """The ways that may have something within the budget of ``plain``, which falls while they are searched."""
        for bound, branch in sorted(self.bounds(record, plain), key=lambda one: one[0]):
            if bound > plain.budget():
                break
            yield branch
            yield from freed.more(branch)

    def freed(
        self, record: CalibrationRecord, near: Mapping[int, Search], also: Sequence[CalibrationRecord] = ()
    ) -> Freed:
        """Looks at ways whose pins are given; ``near`` are searches of tighter limits."""
        return Freed(lambda branch: self.begun(branch, record, also), self.free, self.finer, near)

    def begun(self, branch: Branch, record: CalibrationRecord, also: Sequence[CalibrationRecord] = ()) -> Search:
        """The search of one way on the card and node of ``record``, not begun."""
        frames = [self.setting.frame_with(one, branch.early, self.easy) for one in (record, *also)]
        return BranchSearch(branch, frames[0], self.setting.between, frames[1:])

    def enough(self, best: float, fewest: float, pins: Mapping[str, Pins]) -> float:
        """Seconds that something with these prefetches must reach, where what takes the ``best`` seconds has so few
        changes and prefetches.

        One that changes more, or prefetches more, loses if it is no faster: then only what is faster is looked for.
        What is in place already moves if it is to prefetch; where nothing is in place, everything changes.
        """
        spaces = self.setting.spaces
        new = sum(how != "Current" for how in pins.values()) if spaces[0].current is not None else len(spaces)
        if new + A_PREFETCH * len(pins) <= fewest:
            return best
        between = self.setting.between
        return (best + between) * (1 - ROUNDING) / (1 + TOLERANCE + ROUNDING) - between

    def unmoved(self, record: CalibrationRecord) -> Search:
        """A search in which nothing is prefetched, not even what could be without a branch; not begun."""
        return BranchSearch(self.way({}, moved=True), self.setting.frame_with(record), self.setting.between)

    def bounds(
        self, record: CalibrationRecord, plain: Search, *, moved: bool = False
    ) -> Iterator[tuple[float, Branch]]:
        """Every way to prefetch with the least seconds it may take.

        ``moved`` says that pins are reached by moves: where they are scarce, none stay open.
        """
        scarce, dual = plain.frame.pins_scarce, plain.dual
        names = [space.component.name for space in plain.spaces]
        reduced = dual.all_reduced(plain.listed())
        cheapest = {name: float(each.min(initial=np.inf)) for name, each in zip(names, reduced, strict=True)}
        for early in self.sets([name for name in self.names if moved or name not in self.easy]):
            frame = self.setting.frame_with(record, early)
            limits = np.array([*frame.room, frame.idle_room, frame.host, *frame.pinnable])
            worth = float(dual.vector[dual.active] @ limits[dual.active]) / dual.unit
            for branch in self.of_set(early, moved=moved, given=moved and scarce):
                own = sum(
                    float(dual.reduced(space.coarse(scarce=scarce), c).min()) if name in early else cheapest[name]
                    for c, (name, space) in enumerate(zip(names, branch.spaces, strict=True))
                )
                yield own - worth, branch
