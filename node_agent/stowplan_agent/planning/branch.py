"""One way to prefetch: which components are prefetched, and with which pins; and the option spaces that follow.

Which components are prefetched decides two things. Bytes: what a prefetch holds in the interval before is room that is
taken there, whatever else is chosen (`frame`). Seconds: each chain of `chains` is a function of its head's entry. So
with both given, components are as independent as without any prefetch, and the same search is exact for them
(`branches` goes through all ways).

Pins of what is prefetched stay open where that is exact: no more than one component stands before its loads, and all
ranks load alike, or nothing else is brought in behind it (`lane_load`). Elsewhere all or nothing of it is pinned, and
the proof says so where that may lose (`freed`).

Ranks with equal links pin alike, which loses nothing: given when each interval ends, a rank needs no more than the
fewest pins with which it keeps up, and that is the same choice for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from stowplan_agent.planning.behind import Behind, Load
from stowplan_agent.planning.chains import Chain, chains_of, exposed
from stowplan_agent.planning.head import HeadSpace
from stowplan_agent.planning.lane_load import LaneLoad
from stowplan_agent.planning.prefetched import EasySpace, Pins, PrefetchSpace, is_given, load_by_rank
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.timeline import Timeline


class Branch:
    """The spaces of a record in which the components of ``pins`` are prefetched, and no others.

    ``free`` says that given pins lock nothing (`freed`).
    """

    def __init__(
        self,
        spaces: Sequence[Space],
        timeline: Timeline,
        pins: Mapping[str, Pins],
        heads: dict[tuple[str, Behind, bool, bool], Space],
        easy: Mapping[str, Load],
        *,
        free: bool = False,
    ) -> None:
        self.plain, self.timeline, self.pins, self._heads = spaces, timeline, dict(pins), heads
        self.easy = {name: load for name, load in easy.items() if name not in pins}
        self.free = free
        self.of = {space.component.name: space for space in spaces}
        self.early = frozenset(pins)
        """Names of what is prefetched."""
        self.chains = chains_of(timeline, self.early)
        loads = {name: load_by_rank(self.of[name], how) for name, how in pins.items()}
        links = spaces[0].visits.link_of
        alike: dict[tuple[object, ...], list[int]] = {}
        for rank, link in enumerate(links):
            alike.setdefault((link, *(each[rank] for each in loads.values())), []).append(rank)
        self.lanes = tuple((links[ranks[0]], tuple(ranks)) for ranks in alike.values())
        self.open_loads: dict[str, tuple[str | None, Load | LaneLoad]] = {
            name: (None, load) for name, load in self.easy.items()
        }
        """Loads with open pins by component, and the component before them whose rows they belong to, if any."""
        self.given = tuple((name, tuple(each[ranks[0]] for _, ranks in self.lanes)) for name, each in loads.items())

    @property
    def open_pins(self) -> frozenset[str]:
        """What is prefetched and may have open pins."""
        if not self.plain[0].frame.nodes_alike:
            return frozenset()
        before = {name: {c.component for c in self.chains if _first(c) == name} - {None} for name in self.early}
        return frozenset(
            name
            for name, heads in before.items()
            if self.pins[name] != "Current" and len(heads) <= 1 and self.of[name].open_loads
            if len(self.lanes) == 1 or self._chosen_apart(name)
        )

    def _chosen_apart(self, name: str) -> bool:
        """Whether pins of a component may be chosen on each link by itself (`lane_load`)."""
        if len(self.lanes) != len(self.plain[0].visits.links):
            return False
        behind = [[f.component for f in chain.followers if f.loads] for chain in self.chains]
        mine = [each for each in behind if name in each]
        return all(len(each) == 1 for each in mine) and (len(mine) == 1 or len(self.lanes) == 2)

    @cached_property
    def spaces(self) -> tuple[Space, ...]:
        """One a component, in the record's order."""
        behind, added = self._alike() if len(self.lanes) == 1 else self._apart()
        found: list[Space] = []
        for space in self.plain:
            name = space.component.name
            if name in self.pins:
                free = self.free and is_given(self.pins[name])
                found.append(PrefetchSpace(space, self.pins[name], added[name], free=free))
                continue
            key = (name, behind[name], name in self.easy, self.free)
            if key not in self._heads:
                choice = EasySpace(space, _alone(self.easy[name], space)) if name in self.easy else space
                alone = behind[name].nothing
                self._heads[key] = choice if alone else HeadSpace(choice, behind[name], free=self.free)
            found.append(self._heads[key])
        return tuple(found)

    def _alike(self) -> tuple[dict[str, Behind], dict[str, Floats]]:
        """Where all ranks load alike a load is exposed by what it takes longer than the link is free, of which only
        the head of a chain decides: what is prefetched itself leaves the link free for as long as it runs."""
        loads: dict[str | None, list[Load]] = {name: [] for name in self.of}
        added = {}
        for name, how in self.pins.items():
            stays: dict[str | None, list[tuple[float, int]]] = {}
            others: dict[float, float] = {}
            for chain in self.chains:
                if _first(chain) == name and chain.component is not None:
                    stays.setdefault(chain.component, []).append((chain.share, chain.stay))
                for place, follower in enumerate(chain.followers):
                    if follower.component == name and follower.loads and (place or chain.component is None):
                        free = chain.followers[place - 1].run if place else chain.seconds
                        others[free] = others.get(free, 0.0) + chain.share
            curve, rest = self.of[name].curve, tuple((share, free) for free, share in others.items())
            slow = fast = dict(self.given)[name][0]
            rate = 0.0
            if how == "Open" and curve.pieces:
                slow, fast = curve.longest, curve.shortest
                rate = curve.most / (slow - fast)
                head = next(iter(stays), None)
                load = Load(name, slow, fast, rate, tuple(stays.pop(head, ())), rest)
                self.open_loads[name] = (head, load)
                if head is not None:
                    loads[head].append(load)
                    rest = ()
            for head, each in stays.items():
                loads[head].append(Load(name, slow, fast, rate, tuple(each), ()))
            added[name] = _alone(Load(name, slow, fast, rate, (), rest), self.of[name])
        return {name: Behind(self.lanes, tuple(loads[name])) for name in self.of}, added

    def _apart(self) -> tuple[dict[str, Behind], dict[str, Floats]]:
        """Where ranks load at their own speed the whole chain belongs to its head, but for a load with open pins."""
        heads: dict[str, list[Chain]] = {name: [] for name in self.of}
        added = {name: np.zeros(len(self.of[name].prices)) for name in self.pins}
        loads: dict[str | None, list[LaneLoad]] = {name: [] for name in self.of}
        for name in (one for one, how in self.pins.items() if how == "Open"):
            head, load = self.open_loads[name] = self._apart_load(name)
            if head is None:
                added[name] += load.seconds([np.zeros((1, 0))] * len(self.lanes), self.of[name].prices)[0]
            else:
                loads[head].append(load)
        for chain in self.chains:
            if self.pins[chain.followers[0].component] == "Open":
                continue
            if chain.component is not None:
                heads[chain.component].append(chain)
                continue
            nothing = [np.zeros(1) for _ in self.lanes]
            seconds = exposed(chain, np.full(1, chain.seconds), nothing, dict(self.given))
            added[chain.followers[0].component] += chain.share * float(seconds[0])
        return {
            name: Behind(self.lanes, (), tuple(each), self.given if each else (), tuple(loads[name]))
            for name, each in heads.items()
        }, added

    def _apart_load(self, name: str) -> tuple[str | None, LaneLoad]:
        """The loads of one component with pins open on each link, and the component whose rows they belong to."""
        mine = [chain for chain in self.chains if _first(chain) == name]
        stays = tuple((chain.share, chain.stay) for chain in mine if chain.component is not None)
        others = tuple((chain.share, chain.seconds) for chain in mine if chain.component is None)
        curve, total = self.of[name].curve, self.of[name].component.total_bytes()
        ends = tuple(curve.slow), tuple(curve.fast), tuple(curve.rates)
        head = next((chain.component for chain in mine if chain.component is not None), None)
        return head, LaneLoad(name, total, *ends, stays, others)


def _alone(load: Load, space: Space) -> Floats:
    added: Floats = load.seconds(np.zeros((1, 0)), space.prices)[0]
    return added


def _first(chain: Chain) -> str | None:
    """The component whose load hides behind the head itself."""
    first = chain.followers[0]
    return first.component if first.loads else None
