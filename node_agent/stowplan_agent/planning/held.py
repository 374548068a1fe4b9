"""The bytes of a placement: of every component, of every interval and rank, and of every node."""

from __future__ import annotations

from collections.abc import Mapping

from stowplan_agent.planning.layout import Layout, layout_of
from stowplan_agent.planning.limits import activation_bytes
from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord


def layouts_of(record: CalibrationRecord, placement: Placement) -> dict[str, Layout]:
    """The layout of every component of the record, by name."""
    entries = {entry.name: entry for entry in placement.components}
    ranks, peers = len(record.ranks), have_peers(record)
    return {c.name: layout_of(c, entries.get(c.name), ranks, peers=peers) for c in record.components}


def held_bytes(layout: Layout, timeline: Timeline, component: str, interval: int) -> int:
    """Device bytes that a component holds in one interval, the same on every rank."""
    at_home = interval in timeline.own[component]
    if at_home or (layout.prefetch and interval in timeline.before[component]):
        return layout.always + layout.own
    return layout.always


def device_bytes(
    record: CalibrationRecord, timeline: Timeline, layouts: Mapping[str, Layout]
) -> tuple[tuple[int, ...], ...]:
    """Interval by rank: D of section 3, without the reserve."""
    table = []
    for index, interval in enumerate(record.intervals):
        weights = sum(held_bytes(layout, timeline, name, index) for name, layout in layouts.items())
        table.append(
            tuple(
                rank.outside_bytes + activation_bytes(interval, position) + weights
                for position, rank in enumerate(record.ranks)
            )
        )
    return tuple(table)


def by_node(record: CalibrationRecord, bytes_a_rank: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sums over the ranks of each node, of bytes by component and rank."""
    total = {node.name: 0 for node in record.nodes}
    for index, rank in enumerate(record.ranks):
        total[rank.node] += sum(ranks[index] for ranks in bytes_a_rank.values())
    return total
