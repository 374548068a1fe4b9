"""Why each component is where it is: the option it lost, and the bytes or seconds that decided.

An option is judged with all other components as the plan has them. A faster one was forbidden by a limit, and the
plan says which and by how many bytes; one that takes as long was lost to bytes, and a slower one would have cost
seconds. What an explanation says of an option is what `cost` says of the placement with that option in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.beside import beside_placed
from stowplan_agent.planning.bounded import TOLERANCE
from stowplan_agent.planning.held import layouts_of
from stowplan_agent.planning.lacks import Lacks
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.limits import GIB
from stowplan_agent.planning.rows import ELASTIC, Rows, distinct, joined, least
from stowplan_agent.planning.setting import Setting
from stowplan_agent.planning.swaps import Swaps
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.wording import Lost, explained
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Explanation

NEAR: Final = 24
"""Rows that are priced together on the way to the nearest one."""
NEARBY: Final = (GIB, 8 * GIB, np.inf)
"""Bytes that a row may lack at most where the nearest one is looked for among many."""
FARTHER: Final = (1e-5, 1e-3, np.inf)
"""Shares of a request by which a row may be slower than the chosen one where the next one is looked for among many."""

DIGITS: Final = 11
"""Digits of a share of a request that count where one row of several is chosen."""


def explanations(setting: Setting, placement: Placement, request_seconds: float) -> tuple[Explanation, ...]:
    """One explanation a component, in the record's order."""
    layouts = list(layouts_of(setting.record, placement).values())
    swaps = Swaps(setting.record, setting.timeline, placement, layouts)
    return tuple(
        _Reason(setting, swaps, layouts, index, request_seconds).explanation() for index in range(len(setting.spaces))
    )


class _Reason:
    """Why one component is where it is, with all others as placed."""

    def __init__(
        self, setting: Setting, swaps: Swaps, layouts: Sequence[Layout], index: int, request_seconds: float
    ) -> None:
        self.setting, self.swaps = setting, swaps
        plain = setting.spaces[index]
        self.space = beside_placed(plain, setting.timeline, swaps.layouts)
        self.component = self.space.component
        self.chosen = layouts[index]
        self.entry = swaps.placement.entry(self.component.name)
        self.request_seconds = request_seconds
        self.seconds = plain.visits.seconds(self.chosen)
        if any(layout.prefetch for layout in layouts):
            # What others hide behind this component, and what it hides itself, is in the price of the whole.
            rest = request_seconds - swaps.price(ComponentPlacement(name=self.component.name, mode="Resident")).seconds
            self.seconds = rest + self.space.resident_seconds()
        self.tolerance = TOLERANCE * request_seconds
        self.others = [layout for place, layout in enumerate(layouts) if place != index]
        names = [space.component.name for place, space in enumerate(setting.spaces) if place != index]
        self.lacks = Lacks(setting, self.component.name, names, self.others)

    def explanation(self) -> Explanation:
        return explained(self.setting.record, self.component, self.entry, self._lost())

    def _lost(self) -> Lost | None:
        if self.component.fixed is not None:
            return None
        early = [self._swapped(entry) for entry in self._prefetched()]
        row = self._nearest_faster()
        faster = [self._swapped(self.space.entry(row, 0, self.space.curve.most))] if row is not None else []
        faster += [one for one in early if one.seconds < 0]
        if faster:
            return min(faster, key=lambda one: (one.broken.short_bytes if one.broken else 0, one.seconds))
        row = self._next()
        slower = [self._swapped(self.space.entry(row, 0))] if row is not None else []
        return min((*slower, *early), key=lambda one: (one.broken is not None, one.seconds), default=None)

    def _prefetched(self) -> list[ComponentPlacement]:
        """The same component prefetched: with nothing pinned, with what the others leave, and with all of it."""
        total, record = self.component.total_bytes(), self.setting.record
        if self.chosen.prefetch or not self.setting.timeline.before[self.component.name]:
            return []
        left = min(pins // copies for copies, _, pins in self.lacks.nodes)
        pins = sorted({0, min(max(left, 0), total), total})
        return [self.space.offload((each,) * len(record.ranks), prefetch=True) for each in pins]

    def _swapped(self, entry: ComponentPlacement) -> Lost:
        """What the whole placement would be with another entry for this component, as `cost` has it."""
        priced = self.swaps.price(entry)
        worst = max(priced.violations, key=lambda one: one.short_bytes, default=None)
        more = priced.seconds - self.request_seconds
        return Lost(entry, more if abs(more) > 2 * self.tolerance else 0.0, worst)

    def _nearest_faster(self) -> Rows | None:
        """Of what would be faster, the row that is short of the fewest bytes, then the fastest."""
        best: Rows | None = None
        few = self.space.long and not self.setting.frame.pins_scarce
        for more in NEARBY if few else NEARBY[-1:]:
            best = self._nearest(self.space.quick(self.seconds - 2 * self.tolerance, self.lacks.room + more))
            if best is not None and float(self._short(best, pins=True)[0]) <= more:
                break
        return best

    def _nearest(self, rows: Rows) -> Rows | None:
        enough = self.seconds - 2 * self.tolerance
        rows = self.space.tried(rows)
        rows = rows.take(rows.times[:, -1] < enough)
        if self.setting.frame.pins_scarce and len(rows):
            # Pins are part of what is short: look at all of them, of the shapes that are nearest without any.
            near = distinct(rows.shape[np.argsort(self._short(rows, pins=False), kind="stable")[:NEAR]])
            pinned = self.space.pinned(near[near >= 0]) if (near >= 0).any() else rows.take(rows.shape >= 0)
            rows = joined([rows.take(rows.shape < 0), pinned.take(pinned.times[:, -1] < enough)])
        short = self._short(rows, pins=True)
        order = np.lexsort((rows.times[:, -1], short))
        for start in range(0, len(order), NEAR):
            part = self.space.priced(rows.take(order[start : start + NEAR]))
            good = np.flatnonzero(part.times[:, -1] < enough)
            if len(good):
                lacks = short[order[start : start + NEAR]][good]
                best = good[np.lexsort((self._even(part.times[good, -1]), lacks))[0]]
                return part.take(np.array([best]))
        return None

    def _next(self) -> Rows | None:
        """The fastest row with other bytes; one that fits, where there is one."""
        room = self.lacks.room
        looks = [(self.seconds + share * self.request_seconds, room) for share in FARTHER] if self.space.long else []
        for most, held in (*looks, (np.inf, np.inf)):
            best = self._fastest_other(self.space.quick(most, held))
            if best is not None and float(best.times[0, -1]) <= most and float(self._short(best, pins=True)[0]) <= 0:
                break
        return best

    def _fastest_other(self, rows: Rows) -> Rows | None:
        here = (self.chosen.always, self.chosen.own, self.space.host_bytes(self.chosen))
        rows = self.space.tried(rows)
        other = np.logical_or.reduce([rows.bytes[:, column] != held for column, held in enumerate(here)])
        rows = rows.take(other & (rows.shape != ELASTIC))
        if self.setting.frame.pins_scarce:
            fits = rows.take((rows.shape >= 0) & (self._short(rows, pins=False) <= 0))
            near = distinct(fits.shape[least(fits.times[:, -1], NEAR)])
            rows = joined([rows, self.space.pinned(near)]) if len(near) else rows
        fit = self._short(rows, pins=True) <= 0
        other = fit if fit.any() else np.ones(len(rows), dtype=np.bool_)
        place, times = np.flatnonzero(other), rows.times[other, -1]
        best: Rows | None = None
        done = 0
        while done < len(place):
            order = least(times, done + NEAR)[done:]
            if best is not None and float(times[order[0]]) >= float(best.times[0, -1]):
                break
            part = self.space.priced(rows.take(place[order]))
            first = part.take(np.array([int(part.times[:, -1].argmin())]))
            best = first if best is None or float(first.times[0, -1]) < float(best.times[0, -1]) else best
            done += NEAR
        return best

    def _even(self, times: Floats) -> Floats:
        """Seconds that are equal where they differ by rounding: the same run is simulated alone or beside others."""
        even: Floats = np.round(times / self.request_seconds, DIGITS)
        return even

    def _short(self, rows: Rows, *, pins: bool) -> Floats:
        """Bytes that each row is short of, the worst limit, with the other components as placed."""
        return self.lacks.of(rows, self.space.curve.most if pins else None)
