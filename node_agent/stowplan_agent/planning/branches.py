"""All ways to prefetch, searched one after the other, each with the best of all so far as its limit.

The way in which nothing is prefetched comes first. The prices of its limits bound every other way at once: a way takes
at least the cheapest row of each component that it does not prefetch, what its prefetches cost, and the room that they
take away. Most ways end there. The others are searched like the first, for something as fast as the best known; so the
proof is the same for all: no label within the budget is left anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

import numpy as np

from stowplan_agent.planning.behind import Load
from stowplan_agent.planning.bounded import ROUNDING, TOLERANCE
from stowplan_agent.planning.branch import Branch, easy_load
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.prefetched import GIVEN, Pins
from stowplan_agent.planning.rows import A_PREFETCH
from stowplan_agent.planning.search import Search
from stowplan_agent.planning.setting import Setting
from stowplan_api.record import CalibrationRecord

MOST: Final = 6
"""Components of which every set may be prefetched; of more, the largest ones."""


class BranchSearch(Search):
    """The search of one way to prefetch."""

    def __init__(self, branch: Branch, frame: Frame, between: float, also: Sequence[Frame] = ()) -> None:
        super().__init__(branch.spaces, frame, between, also)
        self.branch = branch


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


class Branches:
    """The ways to prefetch of a setting. What is known of them serves every size of card."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._known: dict[tuple[bool, tuple[tuple[str, Pins], ...]], Branch] = {}
        sizes = {space.component.name: space.component.total_bytes() for space in setting.spaces}
        current = {space.component.name for space in setting.spaces if space.current and space.current.prefetch}
        self.easy: dict[str, Load] = {}
        """What a selection without branches may prefetch or not."""
        if not current and len(setting.spaces[0].visits.links) == 1 and setting.frame.nodes_alike:
            found = {name: easy_load(setting.space(name), setting.timeline) for name in setting.early}
            self.easy = {n: load for n, load in found.items() if load is not None and setting.space(n).open_loads}
        by_size = sorted(setting.early, key=lambda name: -sizes[name])
        self.early = [name for name in by_size if name not in self.easy][:MOST] + list(self.easy)
        for name in setting.early:
            if name not in self.early:
                setting.space(name).left_out.add(f"prefetching of {name}")
        self.names = [name for name in sizes if name in self.early or name in current]
        self.current = current

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
        setting = self.setting
        branch = self._branch({})
        plain = self._begun(branch, record, also)
        if near is not None and near.plain.wide is not None:
            plain.again(near.plain, known)
        else:
            plain.known = known
            if not plain.run(near.plain.chosen if near else ()):
                return None
        if self.names and plain.frame.pins_scarce and len(record.ranks) > len(setting.spaces[0].visits.links):
            setting.spaces[0].left_out.add("ranks with equal links pin alike, also where something is prefetched")
        searches: dict[int, Search] = {id(branch): plain}
        found: list[Search] = [plain]
        best = min(known, plain.best)
        for bound, branch in sorted(self.bounds(record, plain), key=lambda one: one[0]):
            plain.known = best
            if bound > plain.budget():
                break
            search = searches[id(branch)] = self._begun(branch, record, also)
            enough = self._enough(best, found, len(branch.early))
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
        return Searched(plain, [each for each in found if each.leaves], best, searches)

    def _begun(self, branch: Branch, record: CalibrationRecord, also: Sequence[CalibrationRecord]) -> Search:
        frames = [self.setting.frame_with(one, branch.early, self.easy) for one in (record, *also)]
        return BranchSearch(branch, frames[0], self.setting.between, frames[1:])

    def _enough(self, best: float, found: list[Search], prefetches: int) -> float:
        """Seconds that something with so many prefetches must reach.

        Where nothing is in place yet all selections change as much, so one that is no faster than another one with
        fewer prefetches loses to it: then only what is faster is looked for.
        """
        fewest = min((one.fewest_changes() for one in found), default=np.inf)
        if self.setting.spaces[0].current is not None or len(self.setting.spaces) + A_PREFETCH * prefetches <= fewest:
            return best
        between = self.setting.between
        return (best + between) * (1 - ROUNDING) / (1 + TOLERANCE + ROUNDING) - between

    def unmoved(self, record: CalibrationRecord) -> Search:
        """A search in which nothing is prefetched, not even what could be without a branch; not begun."""
        return BranchSearch(self._branch({}, moved=True), self.setting.frame_with(record), self.setting.between)

    def bounds(
        self, record: CalibrationRecord, plain: Search, *, moved: bool = False
    ) -> Iterator[tuple[float, Branch]]:
        """Every way to prefetch with the least seconds it may take.

        ``moved`` says that pins are reached by moves: where they are scarce, none stay open.
        """
        scarce, dual = plain.frame.pins_scarce, plain.dual
        names = [space.component.name for space in plain.spaces]
        pools = [space.coarse(scarce=scarce) for space in plain.spaces]
        cheapest = {
            name: float(dual.reduced(rows, c).min()) for c, (name, rows) in enumerate(zip(names, pools, strict=True))
        }
        for early in self._sets([name for name in self.names if moved or name not in self.easy]):
            frame = self.setting.frame_with(record, early)
            limits = np.array([*frame.room, frame.idle_room, frame.host, *frame.pinnable])
            worth = float(dual.vector[dual.active] @ limits[dual.active]) / dual.unit
            for branch in self._ways(early, moved=moved, given=moved and scarce):
                own = sum(
                    float(dual.reduced(space.coarse(scarce=scarce), c).min()) if name in early else cheapest[name]
                    for c, (name, space) in enumerate(zip(names, branch.spaces, strict=True))
                )
                yield own - worth, branch

    @staticmethod
    def _sets(names: list[str]) -> Iterator[frozenset[str]]:
        for count in range(1, len(names) + 1):
            yield from map(frozenset, combinations(names, count))

    def _ways(self, early: frozenset[str], *, moved: bool, given: bool) -> Iterator[Branch]:
        """The branches of one set: with open pins where that is exact."""
        names = [name for name in self.names if name in early]
        open_pins = frozenset() if given else self._branch(dict.fromkeys(names, "Nothing"), moved=moved).open_pins
        choices: list[tuple[Pins, ...]] = []
        for name in names:
            new: tuple[Pins, ...] = ("Open",) if name in open_pins else GIVEN
            mine = new if name in self.early else ()
            choices.append((*mine, "Current") if name in self.current else mine)
        for pins in product(*choices):
            branch = self._branch(dict(zip(names, pins, strict=True)), moved=moved)
            if len(branch.lanes) > 1 and "Open" in pins:
                for each in product(*(GIVEN if one == "Open" else (one,) for one in pins)):
                    yield self._branch(dict(zip(names, each, strict=True)), moved=moved)
            else:
                yield branch

    def _branch(self, pins: dict[str, Pins], *, moved: bool = False) -> Branch:
        setting, key = self.setting, (moved, tuple(sorted(pins.items())))
        if key not in self._known:
            easy = {} if moved else self.easy
            self._known[key] = Branch(setting.spaces, setting.timeline, pins, setting.heads, easy)
        return self._known[key]
