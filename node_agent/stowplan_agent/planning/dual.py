"""A lower bound of every selection at once: each limit gets a price, and each component takes its cheapest row.

Lagrange: for any prices of the limits that are not negative, the seconds of the cheapest rows, with what they use and
less what the limits are worth, are at most the seconds of the best selection. Prices are searched for that make the
bound high (steps along the subgradient, Polyak's length); any prices at all give a valid bound. A row whose reduced
cost is above the cheapest one's by more than the gap to a known selection is not part of any better one: this rules out
nearly everything, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.rows import ALWAYS, HOST, LOCKED, OWN, Rows, least
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats, Ints

STEPS: Final = 100
"""Steps of a search for prices."""
PATIENCE: Final = 3
"""Steps without a better bound after which less is hoped for, and steps become shorter."""
CLOSE: Final = 1e-6
"""A search that hopes for less than this share ends."""
ENOUGH: Final = 0.03
"""The same as a share of what the bound is below the known selection."""
FEW: Final = 1500
"""Rows of a component up to which the search looks at all of them at each step."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds a byte of each limit."""

    room: Floats
    """By component: device memory in its own intervals."""
    idle: float
    """Device memory where no component runs."""
    host: float
    pins: Floats
    """By node."""

    def of(self, component: int) -> Floats:
        """By column of ``Rows.bytes``: what a byte of one component costs."""
        columns = np.zeros(LOCKED + len(self.pins))
        columns[ALWAYS] = self.room.sum() + self.idle
        columns[OWN] = self.room[component]
        columns[HOST] = self.host
        columns[LOCKED:] = self.pins
        return columns


class Dual:
    """The prices of the limits of one frame, for the rows of its components."""

    def __init__(self, spaces: Sequence[Space], frame: Frame) -> None:
        self.spaces = spaces
        self.frame = frame
        self.steps: list[float] = spaces[0].prices.tolist()
        """Prices at which elastic rows change their pins, falling to 0."""
        self.limits = limits_of(frame)
        self.active = np.isfinite(self.limits)
        self.active[len(frame.room) + 1] &= frame.host_scarce
        self.active[len(frame.room) + 2 :] &= frame.pins_scarce
        self.unit = max(frame.weights, 1.0)
        self.vector: Floats = np.zeros(len(self.limits))
        """The best prices so far, a unit of bytes."""

    def prices(self) -> Prices:
        """The best prices so far."""
        count = len(self.frame.room)
        each = self.vector / self.unit
        return Prices(each[:count], float(each[count]), float(each[count + 1]), each[count + 2 :])

    def worth(self, frame: Frame | None = None) -> float:
        """Seconds that the limits, or those of another frame, are worth at these prices."""
        limits = self.limits if frame is None else limits_of(frame)
        return float(self.vector[self.active] @ limits[self.active]) / self.unit

    def reduced(self, rows: Rows, component: int) -> Floats:
        """Reduced cost of each row."""
        prices = self.prices()
        cost: Floats = self._seconds(rows, float(prices.pins.sum())) + rows.bytes @ prices.of(component)
        return cost

    def all_reduced(self, pools: Sequence[Rows]) -> list[Floats]:
        """Reduced cost of each row of every component."""
        prices, found = self.prices(), []
        price, columns = float(prices.pins.sum()), prices.of(0)
        for rows, room in zip(pools, prices.room.tolist(), strict=True):
            columns[OWN] = room
            found.append(self._seconds(rows, price) + rows.bytes @ columns)
        return found

    def _seconds(self, rows: Rows, price: float) -> Floats:
        """Seconds and the price of locked bytes of each row, at one price a locked byte."""
        above, part = self._between(price)
        if part in (0.0, 1.0):
            return rows.times[:, above + int(part)]
        return rows.times[:, above] * (1 - part) + rows.times[:, above + 1] * part

    def search(self, pools: Sequence[Rows], best: float) -> None:
        """Look for better prices, given the seconds of a known selection."""
        table, times, starts = self._table(pools)
        nodes, active = slice(len(self.frame.room) + 2, None), self.active.astype(np.float64)
        limits = np.where(self.active, self.limits, 0.0) / self.unit
        vector, found, stale = self.vector, -np.inf, 0
        hope, scarce = np.inf, self.frame.pins_scarce
        falls, above, part = times[:-1] - times[1:], len(self.steps) - 1, 0.0
        for _ in range(STEPS):
            if scarce:
                above, part = self._between(float(vector[nodes].sum()) / self.unit)
            cost = table @ vector + times[above]
            if part:
                cost -= part * falls[above]
            picks = [start + int(cost[start:end].argmin()) for start, end in starts]
            slope = np.add.reduce(table.take(picks, axis=0)) - limits
            bound = float(np.add.reduce(cost.take(picks)) - limits @ vector)
            if part:
                # Bytes that elastic pins lock: what times rise by with the price.
                rise = float(np.add.reduce(falls[above].take(picks)))
                slope[nodes] += rise / ((self.steps[above] - self.steps[above + 1]) * self.unit)
            slope *= active
            slope[(vector <= 0) & (slope < 0)] = 0.0
            if bound > found:
                hope = min(hope * 2, best - bound) if bound - found < np.inf else (best - bound) / 2
                self.vector, found, stale, up = vector, bound, 0, slope
            else:
                stale += 1
                if stale % PATIENCE == 0:
                    hope, vector, bound, slope = hope / 4, self.vector, found, up
            steep = float(slope @ slope)
            if steep <= 0 or hope <= max(CLOSE * best, ENOUGH * (best - found)):
                break
            vector = np.maximum(vector + (found + hope - bound) / steep * slope, 0.0)

    def _table(self, pools: Sequence[Rows]) -> tuple[Floats, Floats, list[tuple[int, int]]]:
        """What each row takes of each limit in units; its times, one row a price; and where each component's rows
        start and end."""
        count, limits, place = len(self.frame.room), len(self.limits), 0
        table = np.zeros((sum(map(len, pools)), limits))
        starts = []
        for component, rows in enumerate(pools):
            part = table[place : place + len(rows)]
            part[:, : count + 1] = rows.bytes[:, ALWAYS, None]
            part[:, component] += rows.bytes[:, OWN]
            part[:, count + 1] = rows.bytes[:, HOST]
            part[:, count + 2 :] = rows.bytes[:, LOCKED:]
            starts.append((place, place + len(rows)))
            place += len(rows)
        table *= self.active / self.unit
        times = np.concatenate([rows.times.T for rows in pools], axis=1)
        return table, times, starts

    def _between(self, price: float) -> tuple[int, float]:
        """Which two columns of ``Rows.times`` one price a locked byte is between: the first one, and how far it is from
        there to the next. Times lie on straight lines between them, and above the highest price they stay."""
        steps = self.steps
        if price >= steps[0]:
            return 0, 0.0
        above = next(place for place in range(len(steps) - 2, -1, -1) if steps[place] > price)
        return above, float((steps[above] - price) / (steps[above] - steps[above + 1]))


def limits_of(frame: Frame) -> Floats:
    """The limits that have a price: room of each component, idle room, host copies, pins of each node."""
    return np.array([*frame.room, frame.idle_room, frame.host, *frame.pinnable], dtype=np.float64)


def sampled(dual: Dual, rows: Rows, component: int) -> Ints:
    """A few rows that stand for many in a search for prices: the cheapest ones at prices all over."""
    if len(rows) <= FEW:
        return np.arange(len(rows))
    seconds = rows.times[:, -1]
    scale = max(float(seconds.max() - seconds.min()), 1e-12) / dual.unit
    found: set[int] = set(least(dual.reduced(rows, component), 200).tolist())
    always, own = rows.bytes[:, ALWAYS], rows.bytes[:, OWN]
    kinds = [always, always + own, own]
    if dual.frame.pins_scarce:
        locked = rows.bytes[:, LOCKED:].sum(axis=1)
        kinds += [always + own + locked, locked]
    for held in kinds:
        found |= {int((seconds + scale * 2.0**power * held).argmin()) for power in range(-8, 5, 2)}
    return np.array(sorted(found))
