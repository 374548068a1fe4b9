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
        self.steps = spaces[0].prices
        """Prices at which elastic rows change their pins, falling."""
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
        cost: Floats = rows.times @ self._mix(float(prices.pins.sum())) + rows.bytes @ prices.of(component)
        return cost

    def all_reduced(self, pools: Sequence[Rows]) -> list[Floats]:
        """Reduced cost of each row of every component."""
        prices, found = self.prices(), []
        mix, columns = self._mix(float(prices.pins.sum())), prices.of(0)
        for rows, room in zip(pools, prices.room.tolist(), strict=True):
            columns[OWN] = room
            found.append(rows.times @ mix + rows.bytes @ columns)
        return found

    def search(self, pools: Sequence[Rows], best: float) -> None:
        """Look for better prices, given the seconds of a known selection."""
        table, starts = self._table(pools)
        count, nodes = len(self.limits), slice(len(self.frame.room) + 2, None)
        active = self.active.astype(np.float64)
        limits = np.where(self.active, self.limits, 0.0) / self.unit
        vector, found, stale = self.vector, -np.inf, 0
        hope, scarce = np.inf, self.frame.pins_scarce
        price, mix = 0.0, self._mix(0.0)
        for _ in range(STEPS):
            if scarce:
                price = float(vector[nodes].sum()) / self.unit
                mix = self._mix(price)
            cost = table @ np.concatenate([vector, mix])
            picks = [start + int(cost[start:end].argmin()) for start, end in starts]
            total = table[picks].sum(axis=0)
            bound = float(cost[picks].sum() - limits @ vector)
            slope = total[:count] - limits
            if scarce:
                slope[nodes] += float(total[count:] @ self._fall(price)) / self.unit
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

    def _table(self, pools: Sequence[Rows]) -> tuple[Floats, list[tuple[int, int]]]:
        """What each row takes of each limit in units, and its times; and where each component's rows start and end."""
        count, limits, place = len(self.frame.room), len(self.limits), 0
        table = np.zeros((sum(map(len, pools)), limits + len(self.steps)))
        starts = []
        for component, rows in enumerate(pools):
            part = table[place : place + len(rows)]
            part[:, : count + 1] = rows.bytes[:, ALWAYS, None]
            part[:, component] += rows.bytes[:, OWN]
            part[:, count + 1] = rows.bytes[:, HOST]
            part[:, count + 2 : limits] = rows.bytes[:, LOCKED:]
            part[:, limits:] = rows.times
            starts.append((place, place + len(rows)))
            place += len(rows)
        table[:, :limits] *= self.active / self.unit
        return table, starts

    def _mix(self, price: float) -> Floats:
        """Weights of the columns of ``Rows.times`` at one price a locked byte: they lie on straight lines between."""
        mix = np.zeros(len(self.steps))
        if price >= self.steps[0]:
            mix[0] = 1.0
            return mix
        above = int(np.flatnonzero(self.steps > price)[-1])
        part = (self.steps[above] - price) / (self.steps[above] - self.steps[above + 1])
        mix[above], mix[above + 1] = 1 - part, part
        return mix

    def _fall(self, price: float) -> Floats:
        """Weights of the columns of ``Rows.times`` that give the bytes which elastic pins lock at one price."""
        fall = np.zeros(len(self.steps))
        if price < self.steps[0]:
            above = int(np.flatnonzero(self.steps > price)[-1])
            fall[above] = 1 / (self.steps[above] - self.steps[above + 1])
            fall[above + 1] = -fall[above]
        return fall


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
