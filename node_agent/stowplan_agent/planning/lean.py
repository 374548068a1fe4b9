"""The shapes of a component that need least of every kind of memory: what fits anywhere if anything does."""

from __future__ import annotations

import numpy as np

from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.table import Ints, ShapeTable


def leanest(table: ShapeTable) -> Ints:
    """Shapes of which no other one holds as little for good, in its own intervals, and on the host."""
    few = np.ones(len(table.ways), dtype=np.bool_)
    for index, group in enumerate(table.groups):
        few &= group.slots[table.ways[:, index]] == group.slots.min()
    shapes = np.flatnonzero(few[table.kind])
    if table.ranks > 1:
        return shapes[undominated(np.stack([each[shapes] for each in (table.always, table.own, table.host)], axis=1))]
    # What is not always on the device has a host copy: of those that always hold as much, one holds least.
    shapes = shapes[np.lexsort((table.own[shapes], table.always[shapes]))]
    return np.sort(shapes[np.diff(table.always[shapes], prepend=-1.0) > 0])
