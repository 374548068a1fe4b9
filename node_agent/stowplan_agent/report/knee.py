"""The knee of a frontier: up to where more memory gains much, and from where on little.

It is the point farthest below the straight line from the smallest size that fits to the smallest that is fastest, in
shares of both axes, so that neither unit matters. A curve that is nearly that line has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stowplan_agent.report.frontier import Frontier, Point
from stowplan_agent.report.sizes import GIB

LEAST_BEND: Final = 0.1
"""Share of the axes that the curve must lie below the line for a knee."""


@dataclass(frozen=True, slots=True)
class Knee:
    """Seconds of a request that a GiB saves, on average, up to ``point`` and beyond it."""

    point: Point
    before: float
    after: float


def knee(found: Frontier) -> Knee | None:
    """The knee of ``found``; None where nothing is gained, or each GiB gains about as much as the last."""
    fits, fastest = found.feasible, found.fastest
    if fastest is None or fastest is fits[0]:
        return None
    first = fits[0]
    most, best = first.seconds or 0.0, fastest.seconds or 0.0
    width, height = fastest.size - first.size, most - best

    def bend(point: Point) -> float:
        return 1 - (point.size - first.size) / width - ((point.seconds or 0.0) - best) / height

    between = [point for point in fits if first.size < point.size < fastest.size]
    deepest = max(between, key=bend, default=None)
    if deepest is None or bend(deepest) < LEAST_BEND:
        return None
    seconds = deepest.seconds or 0.0
    before = (most - seconds) / (deepest.size - first.size) * GIB
    return Knee(deepest, before, (seconds - best) / (fastest.size - deepest.size) * GIB)
