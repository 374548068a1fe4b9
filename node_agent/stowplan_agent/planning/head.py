"""The option space of a component behind which something is prefetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from stowplan_agent.planning.behind import Behind
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.price import load_seconds, pass_layers
from stowplan_agent.planning.ring import copy_seconds
from stowplan_agent.planning.rows import ELASTIC, LOCKED, OFFLOAD, PREFETCH, Rows, joined
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats, Ints


class HeadSpace(Space):
    """The rows of a component with the loads that hide behind it. ``free`` says that pins of an Offload lock nothing
    where ranks do not load alike."""

    def __init__(self, plain: Space, behind: Behind, *, free: bool = False) -> None:
        super().__init__(plain.visits, plain.frame)
        self.pricer, self.left_out = plain.pricer, plain.left_out
        self.prices, self.current, self.behind = plain.prices, plain.current, behind
        self.plain, self.free = plain, free

    @cached_property
    def _whole(self) -> Rows:
        """The rows without layers; pins of an Offload are given where ranks do not load alike."""
        rows = self.plain.whole()
        elastic = rows.shape == ELASTIC
        given = self._given_pins() if len(self.behind.lanes) > 1 and bool(elastic.any()) else []
        rows = joined([rows.take(~elastic) if given else rows, *given])
        for index in range(len(rows)):
            rows.times[index] += self._behind(self._layout(rows, index))
        return rows

    def pinned(self, shapes: Ints, locked: float = np.inf) -> Rows:
        """A row for every choice of pins of the given shapes; the most pins too, where a slow rank decides of pins."""
        rows = super().pinned(shapes, locked)
        if len(self.visits.links) == 1:
            return rows
        most = np.repeat(self.pricer.table.most[shapes][:, :, None], len(self.visits.links), axis=2)
        return joined([rows, self._rows(shapes, most)])

    def resident_seconds(self) -> float:
        """Seconds of a Resident, and of what is behind it."""
        layout = self.visits.layout(None)
        return super().resident_seconds() + float(self._behind(layout)[-1])

    def idle(self, rows: Rows, index: int) -> list[Floats]:
        """Seconds in which the link of each lane is free in each stay of one exact row."""
        if rows.shape[index] < 0:
            ends, busy = self._ends(self._layout(rows, index))
            return [ends - each for each in busy]
        shapes, pins = rows.shape[[index]], rows.pins[[index]]
        ends = self._slowest(shapes, pins, exact=True)
        return [ends - self.pricer.busy(shapes, pins[:, :, link], link) for link, _ in self.behind.lanes]

    def sharpened(self, rows: Rows) -> Rows:
        """The rows with what is exposed at least behind each."""
        todo = np.flatnonzero(~rows.priced & ~rows.open)
        if len(todo):
            rows.times[todo] = self._times(rows.shape[todo], rows.pins[todo], exact=False)
        return rows

    def _times(self, shapes: Ints, pins: Ints, *, exact: bool) -> Floats:
        ends = self._slowest(shapes, pins, exact=exact)
        busy = [self.pricer.busy(shapes, pins[:, :, link], link) for link in range(len(self.visits.links))]
        return self._with_behind(ends, busy)

    def _with_behind(self, ends: Floats, busy: Sequence[Floats]) -> Floats:
        """Row by price, from seconds row by stay; those of copies by link class."""
        own = (ends @ np.array(self.visits.shares))[:, None]
        lanes = [busy[link] for link, _ in self.behind.lanes]
        total: Floats = own + self.behind.seconds(ends, lanes, self.prices)
        return total

    @property
    def long(self) -> bool:
        """Whether it pays not to make all rows."""
        return self.plain.long

    @property
    def least(self) -> tuple[float, float]:
        """Seconds that no row is below, what is behind them aside; and bytes that each holds for good."""
        return self.plain.least

    def _quick(self, most: float, room: float) -> Rows:
        return self._with_loads(self.plain.quick(most, room))

    def _all(self, *, scarce: bool) -> Rows:
        return self._with_loads(self.plain.coarse(scarce=scarce))

    def _with_loads(self, plain: Rows) -> Rows:
        """The rows of the component alone, with what is behind them."""
        whole, first = self.whole(), int((plain.shape < 0).sum())
        if self.visits.stays:
            # All loads hidden is a bound; most rows need no better one.
            times, priced = plain.times + self.behind.least(self.prices), np.zeros(len(plain), dtype=np.bool_)
        else:
            times, priced = plain.times.copy(), plain.priced.copy()  # others have these rows as well
        plain = replace(plain, times=times, priced=priced)
        if np.array_equal(whole.shape, plain.shape[:first]):
            # Only seconds differ: nothing else of many rows is copied.
            plain.times[:first], plain.priced[:first] = whole.times, whole.priced
            return plain
        return joined([whole, plain.take(plain.shape >= 0)])

    def _given_pins(self) -> list[Rows]:
        """Offload with all of it pinned, and with nothing pinned."""
        total, parts = self.component.total_bytes(), []
        for pinned in (total,) if self.free else (0, total):
            row = self._entry_row(self.offload((pinned,) * len(self.visits.link_of)), OFFLOAD)
            row.pins[:] = pinned
            row.bytes[:, LOCKED:] *= not self.free
            parts.append(row)
        return parts

    def _layout(self, rows: Rows, index: int) -> Layout:
        # The link is free for as long with an Offload as with a Resident: its own load has ended when it runs.
        entry = None if rows.shape[index] in (ELASTIC, PREFETCH) else self.entry(rows, index)
        return self.visits.layout(entry)

    def _behind(self, layout: Layout) -> Floats:
        ends, busy = self._ends(layout)
        added: Floats = self.behind.seconds(ends, busy, self.prices)[0]
        return added

    def _ends(self, layout: Layout) -> tuple[Floats, list[Floats]]:
        """Seconds of each stay, and seconds of its copies by lane, of the slowest ranks; one row."""
        ranks = range(len(self.visits.link_of))
        ends = np.max([self.visits.times(layout, rank, self.visits.link_of[rank]) for rank in ranks], axis=0)
        busy = [np.max([self._busy(layout, rank) for rank in among], axis=0) for _, among in self.behind.lanes]
        return ends[None, :], [each[None, :] for each in busy]

    def _busy(self, layout: Layout, rank: int) -> Floats:
        link = self.visits.links[self.visits.link_of[rank]]
        return np.array(
            [
                (load_seconds(layout, rank, link) if stay.loads else 0.0)
                + copy_seconds(stay.run.passes, pass_layers(self.component, layout, stay.run, rank, link)[0])
                for _, stay in self.visits.stays
            ]
        )
