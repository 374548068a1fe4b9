"""Ways to prefetch whose pins are not all open, looked at together as if their pins were free.

Where ranks load at their own speed and several loads follow one another, or a load hides behind several components,
what is prefetched is pinned whole or not at all (`branch`). Whatever its pins are in truth, it loads no faster than
pinned whole and locks no less than nothing. So one search in which it does both bounds all choices of pins of the same
components, those that are not tried included: where it finds nothing, nothing is left out. Where it does find
something, the choices are tried, and what they do not reach of it is what the proof must say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stowplan_agent.planning.bounded import TOLERANCE
from stowplan_agent.planning.branch import Branch
from stowplan_agent.planning.prefetched import is_given
from stowplan_agent.planning.search import Search


class Freed:
    """The looks of one record.

    ``begun`` begins a search, ``freed`` gives the way with free pins of another one (None where all pins are open),
    ``finer`` its other choices of pins, ``near`` are searches of tighter limits by their way.
    """

    def __init__(
        self,
        begun: Callable[[Branch], Search],
        freed: Callable[[Branch], Branch | None],
        finer: Callable[[Branch], list[Branch]],
        near: Mapping[int, Search],
    ) -> None:
        self.begun, self.freed, self.finer, self.near = begun, freed, finer, near
        self.searches: dict[int, Search] = {}
        self._refined: list[Branch] = []
        self._tried: dict[int, Branch] = {}

    def hopeful(self, branch: Branch, plain: Search, enough: float) -> bool:
        """Whether a way may have something as fast as ``enough`` seconds; ``plain`` is the search of no prefetches."""
        free = self.freed(branch) if plain.frame.pins_scarce else None
        if free is None:
            return True
        if id(free) not in self.searches:
            search = self.searches[id(free)] = self.begun(free)
            search.only_faster = plain.only_faster
            before = self.near.get(id(free))
            if before is None or before.wide is None:
                search.beside(enough, plain.dual.vector)
            else:
                search.again(before, enough)
        search = self.searches[id(free)]
        search.known = enough
        if search.best > search.of_use(enough):
            return False
        self._tried[id(free)] = branch
        return True

    def more(self, branch: Branch) -> list[Branch]:
        """Other choices of pins than the same on all ranks, the first time that they are asked for."""
        free = self.freed(branch)
        if free is None or free in self._refined or id(free) not in self._tried:
            return []
        self._refined.append(free)
        return self.finer(free)

    def say(self, best: float) -> None:
        """Name what was left out where free pins are faster than the ``best`` that was found."""
        for way, branch in self._tried.items():
            search = self.searches[way]
            if search.best + search.between < (best + search.between) * (1 - TOLERANCE):
                left_out(branch)


def left_out(branch: Branch) -> None:
    """Name what a way does not choose freely."""
    for name, pins in branch.pins.items():
        if is_given(pins):
            branch.of[name].left_out.add(f"{name} is pinned whole or not at all where it is prefetched")
    if len(branch.lanes) > 1:
        for head in {chain.component for chain in branch.chains}:
            space = branch.of.get(head or "")
            if space is not None and space.fixed in (None, "Offload") and space.component.total_bytes():
                reason = f"{head} is pinned whole or not at all where something is prefetched behind it"
                space.left_out.add(reason)
