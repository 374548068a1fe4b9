"""What is prefetched behind what: the stays of a timeline, cut where something runs that is not prefetched.

A prefetch hides behind the stay before it, and what that one leaves of the link may depend on a stay before that. So
each stay that is not prefetched heads a chain: itself, and the prefetched stays that follow it at once. Nothing in a
chain depends on another chain, because nothing of a stay that is not prefetched depends on what came before it. Given
*which* components are prefetched, and with which pins, the seconds of a chain are a function of its head's entry alone:
they are added to the head's own, and every component is on its own again.

A chain in numbers, for each rank: interval ``i`` ends its predecessor at ``E``, and the rank's link is free at ``L``.
A prefetched load of ``t`` seconds then ends at ``D = max(E, L + t)``, the interval ends at ``max D + run`` over ranks,
and the link is free at ``D``. That is the rule of `price` (a load hides min(load, seconds of the interval before less
its link-busy seconds)) written without differences. It is made of sums and largest values, so it never falls when a
run, a copy or a load takes longer: more pins are never slower, and a row that is nowhere worse in bytes, seconds and
link-busy seconds is never worse behind any chain. Pruning by the sum of both is therefore lossless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.timeline import Stay, Timeline
from stowplan_api.record import CalibrationRecord


@dataclass(frozen=True, slots=True)
class Follower:
    """A prefetched stay."""

    component: str
    loads: bool
    run: float
    """Seconds of its passes, all on the device."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A stay that is not prefetched, and the prefetched ones right behind it."""

    share: float
    """Of a request, averaged over workloads."""
    component: str | None
    """Of the head; None where no component runs, or where a workload starts with a prefetched component."""
    stay: int
    """Which stay of the head's component it is, in the order of `Visits.stays`."""
    seconds: float
    """Of a head in which no component runs: its seconds. 0 where there is no head."""
    followers: tuple[Follower, ...]


def chains_of(timeline: Timeline, early: frozenset[str]) -> list[Chain]:
    """The chains that have followers, if the components ``early`` are prefetched."""
    found: list[Chain] = []
    seen: Counter[str] = Counter()
    for course in timeline.courses:
        head, place = None, 0
        followers: list[Follower] = []
        for stay in (*course.stays, None):
            name = stay.component if stay else None
            if stay is not None and name in early and name is not None:
                followers.append(Follower(name, stay.loads, run_alone(stay)))
            else:
                if followers:
                    found.append(_chain(course.share, head, place, tuple(followers)))
                head, place, followers = stay, seen[name] if name else 0, []
            if name:
                seen[name] += 1
    return found


def run_alone(stay: Stay) -> float:
    """Seconds of a stay with everything on the device."""
    return stay.run.passes * (stay.run.loose_seconds + sum(map(sum, stay.run.layer_seconds.values())))


def idle_seconds(stay: Stay) -> float:
    """Seconds in which the link is free in a stay in which nothing is streamed, its own load aside."""
    return run_alone(stay) if stay.component else stay.run.passes * stay.run.loose_seconds


def _chain(share: float, head: Stay | None, place: int, followers: tuple[Follower, ...]) -> Chain:
    idle = idle_seconds(head) if head is not None and head.component is None else 0.0
    return Chain(share, head.component if head else None, place, idle, followers)


def exposed(chain: Chain, end: Floats, busy: Sequence[Floats], loads: Mapping[str, Sequence[float]]) -> Floats:
    """Seconds of all loads of a chain that nothing hides.

    ``end`` are the seconds of the head, ``busy`` those in which its copies keep each lane's link busy, ``loads`` those
    of a load by component and lane. Arrays have one entry a row.
    """
    free = [np.asarray(one, dtype=np.float64) for one in busy]
    total = np.zeros_like(np.asarray(end, dtype=np.float64))
    for follower in chain.followers:
        each = loads[follower.component] if follower.loads else (0.0,) * len(free)
        free = [np.maximum(end, link + load) for link, load in zip(free, each, strict=True)]
        done = np.maximum.reduce(free)
        total = total + (done - end)
        end = done + follower.run
    return total


def early_bytes(record: CalibrationRecord, timeline: Timeline, early: frozenset[str]) -> list[int]:
    """By interval: bytes that prefetches hold there, before their own intervals."""
    held = [0] * len(record.intervals)
    for name in early:
        for interval in timeline.before[name]:
            held[interval] += record.component(name).total_bytes()
    return held
