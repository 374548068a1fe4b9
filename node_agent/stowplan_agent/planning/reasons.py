"""Why each component is where it is: the option it lost, and the bytes or seconds that decided.

An option is judged with all other components as the plan has them. A faster one was forbidden by a limit, and the
plan says which and by how many bytes; a slower one would have cost seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.layout import Layout, layout_of
from stowplan_agent.planning.limits import limits_of
from stowplan_agent.planning.price import cost, held_bytes
from stowplan_agent.planning.rows import ALWAYS, ELASTIC, HOST, LOCKED, OWN, Rows, joined, least
from stowplan_agent.planning.search import TOLERANCE
from stowplan_agent.planning.setting import Setting
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.violations import interval_name
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Explanation, Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Component

NEAR: Final = 24
"""Rows that are priced together on the way to the nearest one."""


def in_words(component: Component, entry: ComponentPlacement) -> str:
    """An entry for people."""
    if entry.mode == "Resident":
        return f"Resident: all {for_people(component.total_bytes())} always on the device"
    if entry.mode == "Offload":
        pins = ", ".join(for_people(pinned) for pinned in entry.pinned_bytes or ()) or "nothing"
        early = ", from the interval before" if entry.prefetch else ""
        return f"Offload: {for_people(component.total_bytes())} brought in to run{early}, {pins} of it pinned"
    groups = {group.name: len(group.layer_bytes) for group in component.groups}
    parts = []
    for group in entry.groups or ():
        kept = "for good" if group.lifetime == "Permanent" else "while it runs"
        resident = f"{group.resident_layers} of {groups.get(group.name, 0)} {group.name} resident"
        parts.append(f"{resident} {kept}" if group.resident_layers else resident)
    return f"Layerwise: {', '.join(parts)}"


def explanations(setting: Setting, placement: Placement, request_seconds: float) -> tuple[Explanation, ...]:
    """One explanation a component, in the record's order. Options that tie with the chosen one are not lost ones."""
    layouts = [layout_of(c, placement.entry(c.name), len(setting.record.ranks)) for c in setting.record.components]
    return tuple(
        _Reason(setting, placement, layouts, index, request_seconds).explanation()
        for index in range(len(setting.spaces))
    )


class _Reason:
    """Why one component is where it is, with all others as placed."""

    def __init__(
        self, setting: Setting, placement: Placement, layouts: Sequence[Layout], index: int, request_seconds: float
    ) -> None:
        self.setting, self.placement, self.index = setting, placement, index
        self.space = setting.spaces[index]
        self.component = self.space.component
        self.chosen = layouts[index]
        self.entry = placement.entry(self.component.name)
        self.seconds = self.space.visits.seconds(self.chosen)
        self.tolerance = TOLERANCE * request_seconds
        self.others = [layout for place, layout in enumerate(layouts) if place != index]
        self.names = [space.component.name for place, space in enumerate(setting.spaces) if place != index]

    def explanation(self) -> Explanation:
        words = in_words(self.component, self.entry)
        if self.component.fixed is not None:
            because = f"it must stay {self.component.fixed.mode}: {self.component.fixed.reason}"
            return Explanation(component=self.component.name, chosen=words, because=because)
        rows = self.space.coarse(scarce=False)
        faster = self._nearest_faster(rows)
        if faster is not None:
            return self._forbidden(words, faster)
        slower = self._next(rows)
        if slower is None:
            because = "it takes the least time it can"
            return Explanation(component=self.component.name, chosen=words, because=because)
        lost = max(float(slower.times[0, -1]) - self.seconds, 0.0)
        because = f"nothing is faster and this fits; the other would cost {lost:.6g} s a request more"
        return Explanation(
            component=self.component.name,
            chosen=words,
            lost=in_words(self.component, self.space.entry(slower, 0)),
            because=because,
        )

    def _nearest_faster(self, rows: Rows) -> Rows | None:
        """Of what would be faster, the row that is short of the fewest bytes, then the fastest."""
        enough = self.seconds - 2 * self.tolerance
        rows = rows.take(rows.times[:, -1] < enough)
        if self.setting.frame.pins_scarce and len(rows):
            # Pins are part of what is short: look at all of them, of the shapes that are nearest without any.
            near = np.unique(rows.shape[np.argsort(self._short(rows, pins=False), kind="stable")[:NEAR]])
            pinned = self.space.pinned(near[near >= 0]) if (near >= 0).any() else rows.take(rows.shape >= 0)
            rows = joined([rows.take(rows.shape < 0), pinned.take(pinned.times[:, -1] < enough)])
        short = self._short(rows, pins=True)
        order = np.lexsort((rows.times[:, -1], short))
        for start in range(0, len(order), NEAR):
            part = self.space.priced(rows.take(order[start : start + NEAR]))
            good = np.flatnonzero(part.times[:, -1] < enough)
            if len(good):
                lacks = short[order[start : start + NEAR]][good]
                best = good[np.lexsort((part.times[good, -1], lacks))[0]]
                return part.take(np.array([best]))
        return None

    def _next(self, rows: Rows) -> Rows | None:
        """The fastest row with other bytes."""
        here = (self.chosen.always, self.chosen.own, self.chosen.host[0])
        other = rows.shape != ELASTIC
        other &= np.logical_or.reduce([rows.bytes[:, column] != held for column, held in enumerate(here)])
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

    def _short(self, rows: Rows, *, pins: bool) -> Floats:
        """Bytes that each row is short of, the worst limit, with the other components as placed."""
        setting, record = self.setting, self.setting.record
        limits = limits_of(record)
        own = setting.timeline.own[self.component.name]
        short = np.zeros(len(rows))
        for interval, room in enumerate(limits.room):
            pairs = zip(self.others, self.names, strict=True)
            held = sum(held_bytes(layout, setting.timeline, name, interval) for layout, name in pairs)
            mine = rows.bytes[:, ALWAYS] + (rows.bytes[:, OWN] if interval in own else 0.0)
            short = np.maximum(short, held + mine - room)
        for place, ranks in enumerate(setting.frame.ranks):
            node = next(i for i, one in enumerate(record.nodes) if one.name == record.ranks[ranks[0]].node)
            host = sum(layout.host[rank] for layout in self.others for rank in ranks)
            short = np.maximum(short, host + len(ranks) * rows.bytes[:, HOST] - limits.host[node])
            if pins:
                locked = sum(layout.locked[rank] for layout in self.others for rank in ranks)
                full = np.where(rows.shape == ELASTIC, self.space.curve.most, rows.bytes[:, LOCKED + place])
                short = np.maximum(short, locked + full - limits.pinnable[node])
        return short

    def _forbidden(self, words: str, lost: Rows) -> Explanation:
        entry = self.space.entry(lost, 0, self.space.curve.most)
        swapped = tuple(entry if one.name == self.component.name else one for one in self.placement.components)
        priced = cost(self.setting.record, Placement(components=swapped))
        saved = f"it would save {self.seconds - float(lost.times[0, -1]):.6g} s a request"
        reason = "no safe order of moves from the current placement reaches it"
        because = f"{_limit(self.setting.record, priced.violations[0]) if priced.violations else reason}; {saved}"
        lost_words = in_words(self.component, entry)
        return Explanation(component=self.component.name, chosen=words, lost=lost_words, because=because)


def _limit(record: CalibrationRecord, violation: Violation) -> str:
    short = f"{violation.short_bytes} bytes ({for_people(violation.short_bytes)}) short"
    if violation.constraint == "device" and violation.interval is not None:
        name = interval_name(record, violation.interval)
        return f"device memory: interval {violation.interval} ({name}) on rank {violation.rank} is {short}"
    kind = "pinned memory" if violation.constraint == "pinned" else "host memory"
    return f"{kind}: node {violation.node} is {short}"
