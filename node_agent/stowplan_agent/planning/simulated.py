"""The exact seconds of shapes: one lane of `lanes` for each way to stream and to pin."""

from __future__ import annotations

import numpy as np

from stowplan_agent.planning.lanes import lane_seconds
from stowplan_agent.planning.links import RankLink
from stowplan_agent.planning.table import Bools, Floats, Ints, ShapeTable
from stowplan_api.record import Run


def simulated(table: ShapeTable, shapes: Ints, pins: Ints, run: Run, link: RankLink) -> Floats:
    """Seconds of all passes of one stay over one link; ``pins`` are pinned layers, row by group."""
    arriving: list[Bools] = []
    copies: list[Floats] = []
    swaps: list[Floats] = []
    slots: list[Ints] = []
    seconds: list[float] = []
    ring_of: list[int] = []
    for index, group in enumerate(table.groups):
        layers = run.layer_seconds.get(group.name)
        if layers is None:
            continue
        way = table.way(shapes, index)
        mask, passing = group.streamed[:, way], group.arriving[:, way]
        pinned = np.cumsum(mask, axis=0) <= pins[:, index]
        fast = group.sizes[:, None] / link.pinned_stream_rate
        slow = group.sizes[:, None] / link.pageable_stream_rate
        arriving.append(passing)
        copies.append(np.where(mask, link.latency_seconds + np.where(pinned, fast, slow), 0.0))
        if link.ranks > 1:
            swaps.append(np.where(passing, group.sizes[:, None] * link.seconds_a_swapped_byte, 0.0))
        ring_of += [len(slots)] * group.layers
        slots.append(group.slots[way])
        seconds += layers
    if not seconds:
        return np.full(len(shapes), run.passes * run.loose_seconds)
    return lane_seconds(
        run.passes,
        run.loose_seconds,
        seconds,
        ring_of,
        np.stack(slots),
        np.concatenate(copies),
        np.concatenate(arriving),
        link.contention,
        np.concatenate(swaps) if swaps else None,
    )
