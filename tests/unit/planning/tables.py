"""Brute force for small records: what `cost` says of every entry of each component, and all combinations.

Bytes of components add up, and so do seconds of a stay but for what a prefetch hides. So each entry is priced once,
beside nothing; then the timeline is walked through as PLANNING.md says it, for all combinations side by side
(`test_parts_add_up` holds that against `cost` itself). Independent of how the solver searches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from brute import entries

from stowplan_agent.planning.layout import layout_of
from stowplan_agent.planning.limits import limits_of
from stowplan_agent.planning.links import have_peers, links_of
from stowplan_agent.planning.price import cost, stay_seconds
from stowplan_agent.planning.timeline import timeline_of
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord

TOLERANCE = 1e-6


@dataclass
class Table:
    """Every entry of one component: its weights (by interval, then locked and host by node), whether it prefetches,
    and the seconds of each of its stays (entry by stay by rank: load, run, copies)."""

    entries: list[ComponentPlacement]
    weights: np.ndarray
    early: np.ndarray
    stays: np.ndarray


def alone(record: CalibrationRecord, entry: ComponentPlacement) -> list[int]:
    """Bytes that one entry adds to a record in which everything else is empty."""
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
    return bytes_


def stays_of(record: CalibrationRecord, entry: ComponentPlacement) -> list[list[tuple[float, float, float]]]:
    """Load, run and copies of every stay of the entry's component, in the order of workloads, by rank."""
    component, ranks = record.component(entry.name), record.ranks
    layout, links = layout_of(component, entry, len(ranks), peers=have_peers(record)), links_of(record)
    stays = [s for course in timeline_of(record).courses for s in course.stays if s.component == entry.name]
    parts = [[stay_seconds(component, layout, s.run, s.loads, i, link) for i, link in enumerate(links)] for s in stays]
    return [[(part.load, part.run, part.copies) for part in stay] for stay in parts]


def tables_of(record: CalibrationRecord, current: Placement | None = None) -> list[Table]:
    """One table a component; a current entry comes first."""
    found = []
    for component in record.components:
        listed = list(entries(component, record))
        if current is not None:
            listed.insert(0, current.entry(component.name))
        weights = np.array([alone(record, entry) for entry in listed])
        early = np.array([bool(entry.prefetch) for entry in listed])
        stays = np.array([stays_of(record, entry) for entry in listed]).reshape(len(listed), -1, len(record.ranks), 3)
        found.append(Table(listed, weights, early, stays))
    return found


def room_of(record: CalibrationRecord) -> np.ndarray:
    """Limits of the columns of `Table.weights`."""
    limits = limits_of(record)
    return np.array([*limits.room, *limits.pinnable, *limits.host])


def seconds_of(record: CalibrationRecord, tables: list[Table], index: np.ndarray) -> np.ndarray:
    """Seconds of a request for each row of ``index`` (an entry of each component)."""
    names = [component.name for component in record.components]
    average = np.zeros(len(index))
    place = dict.fromkeys(names, 0)
    for course in timeline_of(record).courses:
        idle = np.zeros((len(index), len(record.ranks)))
        for stay in course.stays:
            if stay.component is None:
                taken = np.full(len(index), stay.run.passes * stay.run.loose_seconds)
                idle = np.repeat(taken[:, None], len(record.ranks), axis=1)
            else:
                which = names.index(stay.component)
                table, chosen = tables[which], index[:, which]
                load, run, copies = np.moveaxis(table.stays[chosen, place[stay.component]], 2, 0)
                place[stay.component] += 1
                load = load - np.where(table.early[chosen][:, None], np.minimum(load, idle), 0.0)
                taken = (load + run).max(axis=1)
                idle = np.maximum(taken[:, None] - load - copies, 0.0)
            average += course.share * taken
    return average


def every(tables: list[Table]) -> np.ndarray:
    """Every combination of entries, those of the last component fastest."""
    grid = np.meshgrid(*(np.arange(len(table.entries)) for table in tables), indexing="ij")
    return np.stack(grid, axis=-1).reshape(-1, len(tables))


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
    index = every(tables)[fits]
    return float(seconds_of(record, tables, index).min()) if len(index) else None


def best_reachable(record: CalibrationRecord, current: Placement) -> tuple[float | None, float | None]:
    """Seconds of the best placement, and of the best one that some order of moves leads to; two components at most."""
    tables, room = tables_of(record, current), room_of(record)
    index = every(tables)
    seconds = seconds_of(record, tables, index)
    fits = (sums([table.weights for table in tables]) <= room).all(axis=1)
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
    free, led = seconds[fits], seconds[reachable]
    return (float(free.min()) if len(free) else None, float(led.min()) if len(led) else None)
