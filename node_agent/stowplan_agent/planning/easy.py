"""Loads of a component that depend on no other one's entry: whether it is prefetched is one more row of its own."""

from __future__ import annotations

from stowplan_agent.planning.behind import Load
from stowplan_agent.planning.chains import idle_seconds
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.timeline import Timeline


def easy_load(space: Space, timeline: Timeline) -> Load | None:
    """The loads of a component if they depend on no other one's entry; None where they do.

    What has no layers leaves the link free for as long as it runs, whether it stays, is brought in, or is prefetched.
    So what is prefetched behind it, or where no component runs, may be one more row of its own space.
    """
    others: dict[float, float] = {}
    for course in timeline.courses:
        before = None
        for stay in course.stays:
            if stay.component == space.component.name and stay.loads:
                if before is not None and before.component in timeline.layered:
                    return None
                free = idle_seconds(before) if before is not None else 0.0
                others[free] = others.get(free, 0.0) + course.share
            before = stay
    curve = space.curve
    slow, fast = curve.longest, curve.shortest
    rate = curve.most / (slow - fast) if curve.pieces else 0.0
    return Load(space.component.name, slow, fast, rate, (), tuple((share, free) for free, share in others.items()))
