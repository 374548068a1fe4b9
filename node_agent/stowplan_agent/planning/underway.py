"""What is held between two moves, where prefetches come and go.

A prefetch takes room of what runs before it. Which components prefetch changes with each move, and so does the room of
every other component. So labels keep what each component holds in its own intervals apart, and are held against the
room that the components of the moment leave.
"""

from __future__ import annotations

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.labels import Ledger
from stowplan_agent.planning.rows import OWN, Rows
from stowplan_agent.planning.table import Bools, Floats


class UnderWay(Ledger):
    """A ledger with one more column a component: bytes in its own intervals. ``now`` has the room of the moment."""

    def __init__(self, frame: Frame, prices: Floats, *, locked: bool = False) -> None:
        super().__init__(frame, prices, locked=locked)
        self.now = frame
        first, count = len(self.judged), len(frame.components)
        self.owns = slice(first, first + count)
        self.largest = np.concatenate([self.largest, np.zeros(count, dtype=np.bool_)])
        self.judged = np.concatenate([self.judged, np.ones(count, dtype=np.bool_)])

    def columns(self, rows: Rows, component: int) -> Floats:
        """What rows of one component put into each column."""
        more = np.zeros((len(rows), self.owns.stop - self.owns.start))
        more[:, component] = rows.bytes[:, OWN]
        return np.concatenate([super().columns(rows, component), more], axis=1)

    def on_device(self, columns: Floats) -> Bools:
        """Whether labels are within the limits of device memory of the moment."""
        held = columns[:, 0]
        mask: Bools = held <= self.now.idle_room
        mask &= (held[:, None] + columns[:, self.owns] <= self.now.room).all(axis=1)
        return mask
