"""The same work done two ways, in turns which first: what a machine does to one of a pair it does to the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any


@dataclass(frozen=True)
class Took:
    """Seconds of one piece of work on the wall, and of the process."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class Pair:
    """One piece of work without what is measured, and with it."""

    without: Took
    through: Took


def timed(work: Callable[[], Any]) -> Took:
    """Do it once."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began, time.process_time() - cpu)


def in_turns(without: Callable[[], Any], through: Callable[[], Any], count: int) -> list[Pair]:
    """So many pairs, each half of them the other way round."""
    found = []
    for number in range(count):
        if number % 2:
            first = timed(without)
            found.append(Pair(first, timed(through)))
        else:
            first = timed(through)
            found.append(Pair(timed(without), first))
    return found


def figures_of(without: Sequence[float], through: Sequence[float], besides: float = 0.0) -> dict[str, Any]:
    """Medians of both, their ratio, and the spread of the differences within pairs; seconds in, less ``besides``."""
    return {
        "without": round(median(without), 6),
        "through": round(median(through) - besides, 6),
        "ratio": round((median(through) - besides) / median(without), 4),
        "overheadMs": spread(b - a - besides for a, b in zip(without, through, strict=True)),
    }


def spread(seconds: Iterable[float]) -> dict[str, Any]:
    """Median and quartiles, milliseconds."""
    low, middle, high = quantiles(seconds, n=4)
    return {"median": round(middle * 1e3, 3), "quartiles": [round(low * 1e3, 3), round(high * 1e3, 3)]}
