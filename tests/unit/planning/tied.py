"""Brute force for ties: fewest changes, prefetches, device and locked bytes of all that is as fast as the best."""

from __future__ import annotations

import numpy as np
from tables import TOLERANCE, every, room_of, seconds_of, sums, tables_of

from stowplan_api.placement import Placement
from stowplan_api.plan import Cost
from stowplan_api.record import CalibrationRecord


def least_of_ties(record: CalibrationRecord, current: Placement | None = None) -> tuple[int, ...] | None:
    """Of all placements that fit and tie in seconds; ``current`` is an option as well, whatever moves lead to."""
    tables = tables_of(record, current)
    weights = sums([table.weights for table in tables])
    fits = (weights <= room_of(record)).all(axis=1)
    if not fits.any():
        return None
    index, weights = every(tables)[fits], weights[fits]
    seconds = seconds_of(record, tables, index)
    tied = seconds <= seconds.min() * (1 + TOLERANCE)
    index, weights = index[tied], weights[tied]
    changes = (index != 0).sum(axis=1) if current is not None else np.zeros(len(index), dtype=int)
    early = sum(table.early[index[:, place]].astype(int) for place, table in enumerate(tables))
    intervals, nodes = len(record.intervals), len(record.nodes)
    peaks = np.zeros(len(index), dtype=int)
    for rank, described in enumerate(record.ranks):
        runs = [[run.activation_bytes[rank] for run in one.runs if run.passes] for one in record.intervals]
        active = np.array([max(each, default=0) for each in runs])
        peaks += described.outside_bytes + (weights[:, :intervals] + active).max(axis=1)
    locked = weights[:, intervals : intervals + nodes].sum(axis=1)
    return min(zip(changes.tolist(), early.tolist(), peaks.tolist(), locked.tolist(), strict=True))


def peak_of(priced: Cost) -> int:
    return sum(max(ranks) for ranks in zip(*priced.device_bytes, strict=True))
