"""Pins of a shape: a few points that no choice of pins improves on, and every choice of pins there is.

The bound of a run falls in straight lines as more bytes are pinned: first as long as the link decides, then more slowly
as long as copies slow compute. So whatever a locked byte costs, the best a shape can do is one of the points where the
line turns. Only shapes that some point keeps in the running are pinned layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

import numpy as np

from stowplan_agent.planning.pricing import ShapePricer
from stowplan_agent.planning.shares import ShareSearch
from stowplan_agent.planning.table import Bools, Floats, Ints
from stowplan_agent.planning.visits import StayTimes, Visits

MOST_PINS: Final = 4000
"""Pin counts of all groups together up to which each combination of a shape is priced."""


class Point(NamedTuple):
    """A point of every shape."""

    seconds: Floats
    locked: Floats
    """Shape by link class: bytes a rank."""


def open_points(pricer: ShapePricer, visits: Visits, shapes: Ints) -> list[Point]:
    """Points of ``shapes`` such that no choice of pins is below all lines through them."""
    table = pricer.table
    streamed = table.host[shapes] - table.load[shapes]
    loaded = table.load[shapes] - table.loose(shapes)
    none = np.zeros(len(shapes))
    if len(visits.links) == 1:
        turns = [pricer.course(stay.run).turn(table.kind[shapes], visits.links[0]) for _, stay in visits.stays]
        return [
            Point(pricer.relaxed(shapes, pinned, also, 0), (pinned + also)[:, None])
            for pinned in (none, *turns, streamed)
            for also in (none, loaded)
        ]
    full = [pricer.relaxed(shapes, streamed, loaded, link) for link in range(len(visits.links))]
    floor = np.maximum.reduce(full)
    if len(table.groups) > 1 or len(visits.stays) > 1:
        return [Point(floor, np.zeros((len(shapes), len(visits.links))))]
    curves = []
    for link, speed in enumerate(visits.links):
        turn = pricer.course(visits.stays[0][1].run).turn(table.kind[shapes], speed)
        ways = [(none, none), (turn, none), (streamed, none), (streamed, loaded)]
        curves.append(([pricer.relaxed(shapes, *way, link) for way in ways], [sum(way, none) for way in ways]))
    goals = [np.maximum(seconds, floor) for times, _ in curves for seconds in times]
    return [Point(goal, np.stack([_needed(*curve, goal) for curve in curves], axis=1)) for goal in goals]


def _needed(times: list[Floats], pinned: list[Floats], goal: Floats) -> Floats:
    """The fewest bytes with which a falling curve of straight lines reaches ``goal``."""
    need = pinned[-1].copy()
    for index in range(len(times) - 1, 0, -1):
        high, low = times[index - 1], times[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(high > low, np.clip((high - goal) / (high - low), 0.0, 1.0), 0.0)
        within = low <= goal
        need = np.where(within, pinned[index - 1] + part * (pinned[index] - pinned[index - 1]), need)
    return np.where(times[0] <= goal, pinned[0], need)


def raised(points: Sequence[Point], floor: Floats) -> list[Point]:
    """The points of shapes of which each takes at least ``floor`` seconds, whatever its pins: what lies below is cut
    off, where the line from what lies above comes to it. Of one link class."""
    crossing = least_locked(points, np.ones(1), floor)
    return [
        Point(np.maximum(one.seconds, floor), np.where(one.seconds < floor, crossing, one.locked[:, 0])[:, None])
        for one in points
    ]


def least_locked(points: Sequence[Point], ranks: Floats, most: float | Floats) -> Floats:
    """By shape: bytes that it locks at least, on all ranks together, to take at most ``most`` seconds; infinite where
    it takes longer whatever its pins. ``ranks`` are how many there are of each link class."""
    held = [point.locked @ ranks for point in points]
    least: Floats = np.min([np.where(p.seconds <= most, b, np.inf) for p, b in zip(points, held, strict=True)], axis=0)
    for slow, few in zip(points, held, strict=True):
        for fast, many in zip(points, held, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                part = (slow.seconds - most) / (slow.seconds - fast.seconds)
                crossing = few + part * (many - few)
            between = (fast.seconds <= most) & (most < slow.seconds)
            least = np.where(between, np.minimum(least, crossing), least)
    return least


def all_pins(pricer: ShapePricer, visits: Visits, shapes: Ints, locked: float = np.inf) -> tuple[Ints, Ints, set[str]]:
    """Every choice of pins of ``shapes`` that can be worth it: shape and pins (group by link class) of each, and what
    was left out.

    Where all links are alike, only those of which no group alone locks more than ``locked`` bytes a rank.
    """
    if not len(shapes):
        return shapes, np.zeros((0, len(pricer.table.groups), len(visits.links)), dtype=np.int64), set()
    reasons: set[str] = set()
    if len(visits.links) == 1 and len(pricer.table.groups) == 1:
        # The same as below, of all shapes at once.
        counts = _most(pricer, shapes, locked)[:, 0] + 1
        ends = np.cumsum(counts)
        return (
            np.repeat(shapes, counts),
            (np.arange(ends[-1]) - np.repeat(ends - counts, counts))[:, None, None],
            reasons,
        )
    few = _most(pricer, shapes, locked if len(visits.links) == 1 else np.inf)
    # Many shapes have as many layers to pin as others.
    once = lru_cache(None)(lambda most, few: _vectors(most, few, reasons))
    counts_of = zip(pricer.table.most[shapes].tolist(), few.tolist(), strict=True)
    vectors: list[Ints] = [once(tuple(most), tuple(few)) for most, few in counts_of]
    if len(visits.links) == 1:
        chosen = np.repeat(shapes, [len(each) for each in vectors])
        return chosen, np.concatenate(vectors)[:, :, None], reasons
    sizes, pins = [], []
    for shape, each in zip(shapes, vectors, strict=True):
        rows = np.full(len(each), shape)
        ladders = [pricer.exact(rows, each, link) for link in range(len(visits.links))]
        known = {tuple(vector): index for index, vector in enumerate(each.tolist())}
        held = pricer.locked(rows, each)

        def price(link: int, vector: tuple[int, ...], ladders=ladders, known=known) -> StayTimes:  # type: ignore[no-untyped-def]
            return tuple(ladders[link][known[vector]].tolist())

        search = ShareSearch(sorted(known), len(ladders), visits.shares, price, lambda v, k=known, b=held: b[k[v]])  # type: ignore[misc]
        found = search.choices()
        reasons |= search.left_out
        sizes.append(len(found))
        pins += [np.array(one.vectors, dtype=np.int64).T for one in found]
    return np.repeat(shapes, sizes), np.stack(pins), reasons


def in_eighths(most: Ints, pins: Ints) -> Bools:
    """Which choices of pins are eighths of the layers to pin, rounded down, in every group."""
    eighth = -(-8 * pins // np.maximum(most, 1))
    mask: Bools = (most * eighth // 8 == pins).all(axis=1)
    return mask


def _most(pricer: ShapePricer, shapes: Ints, locked: float) -> Ints:
    """Shape by group: layers that may be pinned, no more of a group than lock so many bytes."""
    most: Ints = pricer.table.most[shapes]
    if locked < np.inf:
        most = most.copy()
        for index, table in enumerate(pricer.table.groups):
            few = (table.copied <= locked).sum(axis=1) - 1
            np.minimum(most[:, index], few[pricer.table.way(shapes, index)], out=most[:, index])
    return most


def _vectors(most: tuple[int, ...], few: tuple[int, ...], reasons: set[str]) -> Ints:
    """Choices of pins of groups with ``most`` layers to pin, of no more than ``few`` of them."""
    if len(most) == 1 or prod(count + 1 for count in most) <= MOST_PINS:
        return np.stack([axis.ravel() for axis in np.indices([count + 1 for count in few])], axis=1)
    reasons.add("groups are pinned one after the other, in steps of an eighth of each")
    steps: set[tuple[int, ...]] = set()
    for index, count in enumerate(most):
        for eighth in range(9):
            part = count * eighth // 8
            steps.add(most[:index] + (part,) + (0,) * (len(most) - index - 1))
            steps.add((0,) * index + (part,) + most[index + 1 :])
    return np.array(sorted(one for one in steps if all(a <= b for a, b in zip(one, few, strict=True))), dtype=np.int64)
