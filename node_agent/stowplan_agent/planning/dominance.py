"""Lossless pruning: an option goes only if another one is at least as good for every card, and wins every tie.

``first`` beats ``second`` if it needs no more of anything that is scarce, is no slower, and either is faster by more
than the tolerance of times, or comes first in the tie-breaks of section 4 (device bytes, locked bytes, canonical
text).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.options import Option

ROUNDING: Final = 1e-12
"""Relative: seconds that differ by less are the same sum in another order."""


class Pareto:
    """A growing set of options of one component, none of which beats another.

    ``tolerance`` is in seconds. ``visits`` says whether the component has intervals of its own (if not, what it would
    hold there does not count). ``host`` and ``pins`` say whether host bytes and locked bytes can run short at all;
    where they cannot, they decide ties only. ``nodes`` lists the ranks (by index) of each node.
    """

    def __init__(
        self, *, tolerance: float, visits: bool, host: bool, pins: bool, nodes: Sequence[Sequence[int]]
    ) -> None:
        self.tolerance = tolerance
        self.visits = visits
        self.host = host
        self.pins = pins
        self.nodes = nodes
        self.options: list[Option] = []
        self._table: npt.NDArray[np.float64] = np.empty((1 + visits + host + pins * len(nodes) + 2, 64))

    def beaten(self, option: Option) -> bool:
        """Whether some option of the set beats this one."""
        row = self._row(option)
        return any(self._wins(index, option, row) for index in self._nowhere_worse(row))

    def add(self, option: Option) -> None:
        """Add an option that is not beaten."""
        if len(self.options) == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.empty_like(self._table)], axis=1)
        self._table[:, len(self.options)] = self._row(option)
        self.options.append(option)

    def pruned(self) -> list[Option]:
        """The options of the set that no other one beats, whatever the order in which they came."""
        kept = []
        for index, option in enumerate(self.options):
            row = self._table[:, index]
            if not any(rival != index and self._wins(rival, option, row) for rival in self._nowhere_worse(row)):
                kept.append(option)
        return kept

    def _nowhere_worse(self, row: npt.NDArray[np.float64]) -> list[int]:
        """Options that need no more of anything and are no slower (but for rounding)."""
        table = self._table[:, : len(self.options)]
        mask = table[-2] <= row[-2] * (1 + ROUNDING)
        for column in range(len(row) - 2):
            mask &= table[column] <= row[column]
        return [int(index) for index in np.flatnonzero(mask)]

    def _row(self, option: Option) -> npt.NDArray[np.float64]:
        layout = option.layout
        row: list[float] = [layout.always]
        if self.visits:
            row.append(layout.always + layout.own)
        if self.host:
            row.append(layout.host[0])
        if self.pins:
            row += [sum(layout.locked[rank] for rank in ranks) for ranks in self.nodes]
        return np.array([*row, option.seconds, sum(layout.locked)], dtype=np.float64)

    def _wins(self, index: int, other: Option, row: npt.NDArray[np.float64]) -> bool:
        one = self._table[:, index]
        device = 1 + self.visits
        return bool(
            one[-2] + self.tolerance < row[-2]
            or one[-1] < row[-1]
            or (one[:device] < row[:device]).all()
            or (one[-1] == row[-1] and self.options[index].text < other.text)
        )
