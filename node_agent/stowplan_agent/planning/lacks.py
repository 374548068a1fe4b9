"""Bytes that an option of one component is short of, beside the other components of a plan.

What the others hold is summed up once; an explanation then holds many rows against it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan_agent.planning.held import held_bytes
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.limits import limits_of
from stowplan_agent.planning.rows import ALWAYS, ELASTIC, HOST, LOCKED, OWN, Rows
from stowplan_agent.planning.setting import Setting
from stowplan_agent.planning.table import Floats


class Lacks:
    """What the ``others`` of a plan (components ``names``) leave to ``component``."""

    def __init__(self, setting: Setting, component: str, names: Sequence[str], others: Sequence[Layout]) -> None:
        record, timeline = setting.record, setting.timeline
        limits, own = limits_of(record), timeline.own[component]
        over = {True: -np.inf, False: -np.inf}
        for interval, room in enumerate(limits.room):
            held = sum(held_bytes(layout, timeline, name, interval) for name, layout in zip(names, others, strict=True))
            over[interval in own] = max(over[interval in own], held - room)
        self.room = -over[True]
        """Bytes of device memory in the tightest of its own intervals; less than 0 where others alone are over."""
        self.idle_room = -over[False]
        """The same of all other intervals."""
        self.nodes: list[tuple[int, int, int]] = []
        """By node: host copies of everything, and bytes of host copies and of pins that are left."""
        for ranks, copies in zip(setting.frame.ranks, setting.frame.ranks_of.sum(axis=1), strict=True):
            node = next(i for i, one in enumerate(record.nodes) if one.name == record.ranks[ranks[0]].node)
            host = sum(layout.host[rank] for layout in others for rank in ranks)
            locked = sum(layout.locked[rank] for layout in others for rank in ranks)
            self.nodes.append((int(copies), limits.host[node] - host, limits.pinnable[node] - locked))

    def of(self, rows: Rows, elastic: float | None = None) -> Floats:
        """Bytes that each row is short of, the worst limit; with pins if it is given what an ``elastic`` row locks."""
        always, own = rows.bytes[:, ALWAYS], rows.bytes[:, OWN]
        short: Floats = np.maximum(np.maximum(always - self.idle_room, always + own - self.room), 0.0)
        for place, (copies, host, pins) in enumerate(self.nodes):
            np.maximum(short, copies * rows.bytes[:, HOST] - host, out=short)
            if elastic is not None:
                locked = np.where(rows.shape == ELASTIC, elastic, rows.bytes[:, LOCKED + place])
                np.maximum(short, locked - pins, out=short)
        return short
