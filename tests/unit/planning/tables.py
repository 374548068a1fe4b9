"""Brute force for small records, one component at a time: what `cost` says of every entry, and all combinations.

Without prefetching, bytes and seconds of components add up (`test_parts_add_up` holds that against `cost` itself), so
each entry is priced once, beside nothing, and the combinations are sums. Independent of how the solver searches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from brute import entries

from stowplan_agent.planning.limits import limits_of
from stowplan_agent.planning.price import cost
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord

TOLERANCE = 1e-6


@dataclass
class Table:
    """Every entry of one component, its own seconds, and its weights: by interval, then locked and host by node."""

    entries: list[ComponentPlacement]
    seconds: np.ndarray
    weights: np.ndarray


def alone(record: CalibrationRecord, entry: ComponentPlacement) -> tuple[float, list[int]]:
    """Seconds and bytes that one entry adds to a record in which everything else is empty and takes no time."""
    data = record.to_json()
    for component in data["components"]:
        if component["name"] != entry.name:
            component.update(looseBytes=0, groups=[], fixed=None)
    for interval in data["intervals"]:
        for run in interval["runs"]:
            run["activationBytes"] = [0] * len(record.ranks)
            if interval["component"] != entry.name:
                run.update(looseSeconds=0.0, layerSeconds={})
    for rank in data["ranks"]:
        rank["outsideBytes"] = 0
    others = [
        ComponentPlacement(name=one["name"], mode="Resident") for one in data["components"] if one["name"] != entry.name
    ]
    priced = cost(CalibrationRecord.from_json(data), Placement(components=(*others, entry)))
    nodes = [node.name for node in record.nodes]
    bytes_ = [max(ranks) for ranks in priced.device_bytes]
    bytes_ += [priced.locked_bytes[name] for name in nodes] + [priced.host_bytes[name] for name in nodes]
    return priced.seconds, bytes_


def tables_of(record: CalibrationRecord, current: Placement | None = None) -> list[Table]:
    """One table a component; a current entry comes first."""
    found = []
    for component in record.components:
        listed = list(entries(component, len(record.ranks)))
        if current is not None:
            listed.insert(0, current.entry(component.name))
        priced = [alone(record, entry) for entry in listed]
        found.append(Table(listed, np.array([p[0] for p in priced]), np.array([p[1] for p in priced])))
    return found


def room_of(record: CalibrationRecord) -> np.ndarray:
    """Limits of the columns of `Table.weights`."""
    limits = limits_of(record)
    return np.array([*limits.room, *limits.pinnable, *limits.host])


def between(record: CalibrationRecord) -> float:
    """Seconds in which no component runs (one workload)."""
    return sum(one.runs[0].passes * one.runs[0].loose_seconds for one in record.intervals if one.component is None)


def sums(parts: list[np.ndarray]) -> np.ndarray:
    """Sums over every combination of one row of each part, the last part fastest."""
    total = parts[0]
    for part in parts[1:]:
        shape = (total.shape[0] * part.shape[0], *total.shape[1:])
        total = (total[:, None] + part[None, :]).reshape(shape)
    return total


def best(record: CalibrationRecord) -> float | None:
    """Seconds of the best placement."""
    tables = tables_of(record)
    fits = (sums([table.weights for table in tables]) <= room_of(record)).all(axis=1)
    seconds = sums([table.seconds for table in tables])[fits]
    return float(seconds.min()) + between(record) if len(seconds) else None


def best_reachable(record: CalibrationRecord, current: Placement) -> tuple[float | None, float | None]:
    """Seconds of the best placement, and of the best one that some order of moves leads to; two components at most."""
    tables, room = tables_of(record, current), room_of(record)
    seconds = sums([table.seconds for table in tables])
    fits = (sums([table.weights for table in tables]) <= room).all(axis=1)
    index = np.array(list(product(*(range(len(table.entries)) for table in tables))))
    now = sum(table.weights[0] for table in tables)
    moved = [
        ((now - table.weights[0] + table.weights) <= room).all(axis=1)[index[:, place]]
        for place, table in enumerate(tables)
    ]
    still = index == 0
    first = np.logical_or.reduce([moved[place] | still.all(axis=1) for place in range(len(tables))])
    alone_moved = np.logical_or.reduce(
        [moved[place] & np.delete(still, place, axis=1).all(axis=1) for place in range(len(tables))]
    )
    both = ~still.any(axis=1) & first if len(tables) > 1 else np.zeros(len(index), dtype=bool)
    reachable = fits & (still.all(axis=1) | alone_moved | both)
    free = seconds[fits]
    led = seconds[reachable]
    extra = between(record)
    return (
        float(free.min()) + extra if len(free) else None,
        float(led.min()) + extra if len(led) else None,
    )
