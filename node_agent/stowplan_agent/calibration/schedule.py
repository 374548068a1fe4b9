"""From a short request that was watched to the declared one: its intervals in order, with its passes. Pure.

What one pass takes is as it was watched; how many there are, and who makes them, is what a rehearsal of the declared
steps called. An expert that the short request never reached is taken to be like its twin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stowplan_agent.calibration.observation import Observation

Call = tuple[str, str]


@dataclass
class _Stretch:
    """Consecutive calls of one component, as the watch joins them."""

    component: str
    entry: str
    calls: int = 0


def at_target(
    observed: Sequence[Observation], calls: Sequence[Call], twins: Mapping[str, Sequence[str]]
) -> tuple[Observation, ...] | None:
    """The observations of the request that makes these calls; None where a component has nobody to stand for it.

    ``observed`` are those of a shorter request of the same shape. A stretch of calls is like the stretch of the same
    component in the same place of its own; the interval between two components like the one between the same two, or
    after or before one of them.
    """
    stretches: list[_Stretch] = []
    for component, entry in calls:
        if not stretches or stretches[-1].component != component:
            stretches.append(_Stretch(component, entry))
        stretches[-1].calls += 1
    gaps = _gaps(observed)
    visits: dict[str, int] = {}
    found: list[Observation] = []
    before: str | None = None
    for stretch in stretches:
        like = _alike(observed, stretch.component, twins, visits.get(stretch.component, 0))
        if like is None:
            return None
        visits[stretch.component] = visits.get(stretch.component, 0) + 1
        entry = "between" if before else "prepare"
        found.append(_gap(gaps, before, stretch.component, twins, entry))
        passes = -(-like.passes * stretch.calls // like.calls)
        found.append(
            replace(like, component=stretch.component, entry=stretch.entry, calls=stretch.calls, passes=passes)
        )
        before = stretch.component
    return (*found, _gap(gaps, before, None, twins, "finish"))


def _alike(
    observed: Sequence[Observation], component: str, twins: Mapping[str, Sequence[str]], visit: int
) -> Observation | None:
    for name in (component, *twins.get(component, ())):
        own = [one for one in observed if one.component == name]
        if own:
            return own[min(visit, len(own) - 1)]
    return None


def _gaps(observed: Sequence[Observation]) -> dict[tuple[str | None, str | None], Observation]:
    """The intervals without a component, by what ran before and after them."""
    found: dict[tuple[str | None, str | None], Observation] = {}
    for index, one in enumerate(observed):
        if one.component is None:
            before = observed[index - 1].component if index else None
            after = observed[index + 1].component if index + 1 < len(observed) else None
            found.setdefault((before, after), one)
    return found


def _gap(
    gaps: Mapping[tuple[str | None, str | None], Observation],
    before: str | None,
    after: str | None,
    twins: Mapping[str, Sequence[str]],
    entry: str,
) -> Observation:
    def same(name: str | None, other: str | None) -> bool:
        return name == other or (name is not None and other in twins.get(name, ()))

    ends = [one for key, one in gaps.items() if same(before, key[0]) and same(after, key[1])]
    sides = [one for key, one in gaps.items() if same(before, key[0]) or same(after, key[1])]
    like = (ends or sides or list(gaps.values()))[0]
    return replace(like, entry=entry)
