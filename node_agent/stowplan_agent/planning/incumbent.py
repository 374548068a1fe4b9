"""The best selection known: found cheaply, made better one component at a time; and what it rules out at a glance.

It proves nothing. But the closer it is to the best there is, the more rows the bound of `dual` can rule out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.labels import Labels, Ledger
from stowplan_agent.planning.merge import Merge
from stowplan_agent.planning.pareto import covered, undominated
from stowplan_agent.planning.rows import ALWAYS, HOST, OWN, Rows, joined
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats

DOZEN: Final = 12
"""Rows that are priced together where the first of them is asked for."""


class Incumbent:
    """The fastest selection so far in one frame."""

    def __init__(self, spaces: Sequence[Space], frame: Frame) -> None:
        self.spaces, self.frame = spaces, frame
        self.ledger = Ledger(frame, spaces[0].prices)
        self.best = np.inf
        """Seconds of the best selection so far, without what runs between components."""
        self.chosen: list[Rows] = []
        """Its rows, one a component."""
        self._columns: dict[int, tuple[Rows, Floats]] = {}
        """Chosen rows that were looked at, and what they put into each column."""

    def first(self) -> bool:
        """Whether anything is within limits; its seconds are a start."""
        pools = [space.smallest for space in self.spaces]
        ledger = Ledger(self.frame, self.spaces[0].prices)
        ledger.judged = np.zeros_like(ledger.judged)
        ledger.judged[:2] = True
        ledger.judged[2] = self.frame.host_scarce
        nothing = [np.zeros(len(rows)) for rows in pools]
        labels = Merge(ledger, pools, nothing, np.inf).full(enough=1)
        if not len(labels):
            return False
        one = int(ledger.seconds(labels.columns).argmin())
        chosen = [
            space.priced(rows.take(labels.rows[one, c : c + 1]))
            for c, (space, rows) in enumerate(zip(self.spaces, pools, strict=True))
        ]
        self.take(chosen, self.alone(chosen))
        return True

    def alone(self, rows: Sequence[Rows]) -> Labels:
        """The label of one row a component; none if it is not within limits."""
        return Merge(self.ledger, rows, [np.zeros(1)] * len(rows), np.inf).full()

    def take(self, pools: Sequence[Rows], labels: Labels) -> bool:
        """Whether one of these selections, all exact, is faster than the best so far."""
        if not len(labels):
            return False
        seconds = self.ledger.seconds(labels.columns)
        one = int(seconds.argmin())
        if seconds[one] >= self.best:
            return False
        self.best = float(seconds[one])
        self.chosen = [rows.take(labels.rows[one, c : c + 1]) for c, rows in enumerate(pools)]
        return True

    def possible(self, pools: Sequence[Rows], budget: float, frame: Frame | None = None) -> list[Rows]:
        """Only rows that are within limits (or those of another frame) and a budget of seconds beside the least that
        any other component takes."""
        if not all(map(len, pools)):
            return list(pools)
        frame, kept = frame or self.frame, []
        columns = [
            (rows.bytes[:, ALWAYS], rows.bytes[:, OWN] - frame.room[c], rows.bytes[:, HOST], rows.times[:, -1])
            for c, rows in enumerate(pools)
        ]
        least = [[float(column.min()) for column in each] for each in columns]
        for component, (rows, (always, own, host, seconds)) in enumerate(zip(pools, columns, strict=True)):
            others = least[:component] + least[component + 1 :]
            held = always + sum(each[0] for each in others)
            mask = held + np.maximum(own, max((each[1] for each in others), default=-np.inf)) <= 0
            mask &= (held <= frame.idle_room) & (host + sum(each[2] for each in others) <= frame.host)
            if not frame.pins_scarce:
                # Where pins are scarce several open rows stand for what lies between them.
                mask &= seconds + sum(each[3] for each in others) <= budget
            kept.append(rows if mask.all() else rows.take(mask))
        return kept

    def front(self, rows: Rows, component: int) -> Rows:
        """The rows that are nowhere worse than another one, bounds taken for seconds."""
        return rows.take(undominated(self.ledger.columns(rows, component)[:, self.ledger.judged]))

    def uncovered(self, rows: Rows, component: int) -> Rows:
        """Without the rows whose bounds are nowhere better than the exact seconds of another row."""
        columns = self.ledger.columns(rows, component)[:, self.ledger.judged]
        exact = columns[rows.priced]
        exact = exact[undominated(exact)]
        keep = rows.priced.copy()
        keep[~rows.priced] = ~covered(exact, columns[~rows.priced])
        return rows.take(keep)

    def descend(self, pools: Sequence[Rows]) -> None:
        """Change one component at a time to what is fastest beside the others, until none gets faster."""
        stale, component = 0, 0
        while stale < len(pools):
            stale = 0 if self.moved(pools[component], component) else stale + 1
            component = (component + 1) % len(pools)

    def moved(self, rows: Rows, component: int) -> bool:
        """Change one component to the fastest of ``rows`` beside the others; whether that is faster than before."""
        rest = np.where(self.ledger.largest, -np.inf, 0.0)
        for other, row in enumerate(self.chosen):
            if other != component:
                rest = self.ledger.joined(rest, self._held(row, other))
        return self._fastest_beside(rest, rows, component)

    def _held(self, row: Rows, component: int) -> Floats:
        """Columns of a chosen row, worked out once."""
        known = self._columns.get(component)
        if known is None or known[0] is not row:
            known = self._columns[component] = row, self.ledger.columns(row, component)[0]
        return known[1]

    def _fastest_beside(self, rest: Floats, rows: Rows, component: int) -> bool:
        space = self.spaces[component]
        while True:
            columns = self.ledger.joined(self.ledger.columns(rows, component), rest)
            seconds = np.where(self.ledger.fit(columns), self.ledger.seconds(columns), np.inf)
            rows = rows.take(np.argsort(seconds, kind="stable")[: int((seconds < self.best).sum())])
            if not len(rows):
                return False
            first = rows.take(np.arange(1))
            few = np.arange(len(rows)) < DOZEN
            if first.open[0]:
                rows = joined([space.opened(first), rows.take(rows.shape != first.shape[0])])
            elif not first.priced[0]:
                rows = joined([space.priced(rows.take(few)), rows.take(~few)])
            else:
                self.best = float(np.sort(seconds)[0])
                self.chosen[component] = first
                return True
