"""All ways to prefetch of a record: every set of components that may be prefetched, with every choice of given pins.

What is known of a way serves every size of card.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import prod
from typing import Final

from stowplan_agent.planning.behind import Load
from stowplan_agent.planning.branch import Branch
from stowplan_agent.planning.easy import easy_load
from stowplan_agent.planning.prefetched import GIVEN, Pins, is_given, mixed
from stowplan_agent.planning.setting import Setting

MOST: Final = 6
"""Components of which every set may be prefetched; of more, the largest ones."""
MOST_FINER: Final = 64
"""Choices of given pins up to which all of them are tried."""


class Ways:
    """The ways of a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._known: dict[tuple[bool, bool, tuple[tuple[str, Pins], ...]], Branch] = {}
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
        self.nothing = self.way({})
        """The way in which nothing is prefetched."""

    def free(self, branch: Branch) -> Branch | None:
        """The way with free pins; None where all pins are open."""
        if len(branch.lanes) == 1 and not any(map(is_given, branch.pins.values())):
            return None
        pins: dict[str, Pins] = {name: "All" if is_given(how) else how for name, how in branch.pins.items()}
        return self.way(pins, free=True)

    def finer(self, free: Branch) -> list[Branch]:
        """The ways with free pins ``free`` in which some ranks pin what others do not."""
        every = [*GIVEN, *mixed(len(self.setting.spaces[0].visits.links))]
        choices = [every if is_given(how) else [how] for how in free.pins.values()]
        if len(every) == len(GIVEN) or prod(map(len, choices)) > MOST_FINER:
            return []
        chosen = (each for each in product(*choices) if any(is_given(pins) and pins not in GIVEN for pins in each))
        return [self.way(dict(zip(free.pins, each, strict=True))) for each in chosen]

    @staticmethod
    def sets(names: list[str]) -> Iterator[frozenset[str]]:
        """All sets of ``names`` but the empty one."""
        for count in range(1, len(names) + 1):
            yield from map(frozenset, combinations(names, count))

    def of_set(self, early: frozenset[str], *, moved: bool, given: bool) -> Iterator[Branch]:
        """The branches of one set: with open pins where that is exact."""
        names = [name for name in self.names if name in early]
        open_pins = frozenset() if given else self.way(dict.fromkeys(names, "Nothing"), moved=moved).open_pins
        choices: list[tuple[Pins, ...]] = []
        for name in names:
            new: tuple[Pins, ...] = ("Open",) if name in open_pins else GIVEN
            mine = new if name in self.early else ()
            choices.append((*mine, "Current") if name in self.current else mine)
        for pins in product(*choices):
            branch = self.way(dict(zip(names, pins, strict=True)), moved=moved)
            if len(branch.lanes) > 1 and any(
                how == "Open" for name, how in branch.pins.items() if name not in branch.open_pins
            ):
                for each in product(*(GIVEN if one == "Open" else (one,) for one in pins)):
                    yield self.way(dict(zip(names, each, strict=True)), moved=moved)
            else:
                yield branch

    def way(self, pins: dict[str, Pins], *, moved: bool = False, free: bool = False) -> Branch:
        """The way with these pins, made once."""
        setting, key = self.setting, (moved, free, tuple(sorted(pins.items())))
        if key not in self._known:
            easy = {} if moved else self.easy
            self._known[key] = Branch(setting.spaces, setting.timeline, pins, setting.heads, easy, free=free)
        return self._known[key]
