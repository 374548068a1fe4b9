"""The order in which components move from one placement to another without ever passing a limit.

Moves are not transactions: after each one the device and the host hold what the mixed placement says, so every mixed
placement on the way must fit. A bad order can run out of memory between two placements that both fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.planning.held import held_bytes
from stowplan_agent.planning.layout import layout_of
from stowplan_agent.planning.limits import limits_of
from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.options import same_bytes
from stowplan_agent.planning.timeline import timeline_of
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Move
from stowplan_api.record import CalibrationRecord

Usage = tuple[int, ...]
"""Bytes of one entry: of each interval, then locked and host bytes of each node."""


def moves(record: CalibrationRecord, current: Placement, target: Placement) -> tuple[Move, ...] | None:
    """A safe order of the components that differ, or None when there is none.

    Each move takes one component to its target; device, pinned and host bytes stay within the record's limits after
    every one. Entries that place the same bytes do not move. A component that ``current`` lacks holds nothing before
    its move. The search is exhaustive over sets of moved components; moves that take no more of anything go first,
    which loses no order.
    """
    before = {entry.name: entry for entry in current.components}
    after = {entry.name: entry for entry in target.components}
    usage = _Usages(record)
    spare = list(usage.limits)
    changed: list[tuple[Move, Usage]] = []
    for component in record.components:
        old, new = before.get(component.name), after[component.name]
        held = usage.of(component.name, old) if old else (0,) * len(spare)
        spare = [left - bytes_ for left, bytes_ in zip(spare, held, strict=True)]
        if old is None or not same_bytes(old, new, component):
            grows = tuple(a - b for a, b in zip(usage.of(component.name, new), held, strict=True))
            changed.append((Move(component=component.name, from_=old, to=new), grows))
    order = _order([grows for _, grows in changed], spare)
    return None if order is None else tuple(changed[index][0] for index in order)


class _Usages:
    def __init__(self, record: CalibrationRecord) -> None:
        self.record = record
        self.timeline = timeline_of(record)
        self.peers = have_peers(record)
        limits = limits_of(record)
        self.limits: Usage = (*limits.room, *limits.pinnable, *limits.host)

    def of(self, name: str, entry: ComponentPlacement) -> Usage:
        layout = layout_of(self.record.component(name), entry, len(self.record.ranks), peers=self.peers)
        held = (held_bytes(layout, self.timeline, name, i) for i in range(len(self.record.intervals)))
        return (*held, *self._nodes(layout.locked), *self._nodes(layout.host))

    def _nodes(self, ranks: Sequence[int]) -> list[int]:
        pairs = list(zip(self.record.ranks, ranks, strict=True))
        return [sum(bytes_ for rank, bytes_ in pairs if rank.node == node.name) for node in self.record.nodes]


def _order(grows: list[Usage], spare: list[int]) -> list[int] | None:
    """Indexes of ``grows`` in an order in which no prefix passes ``spare``, depth first; dead sets are remembered."""
    dead: set[frozenset[int]] = set()

    def search(left: frozenset[int], spare: list[int]) -> list[int] | None:
        if not left:
            return []
        if left in dead:
            return None
        fits = [one for one in sorted(left) if all(g <= s for g, s in zip(grows[one], spare, strict=True))]
        free = [one for one in fits if all(g <= 0 for g in grows[one])]
        for one in free[:1] or fits:
            rest = search(left - {one}, [s - g for s, g in zip(spare, grows[one], strict=True)])
            if rest is not None:
                return [one, *rest]
        dead.add(left)
        return None

    return search(frozenset(range(len(grows))), spare)
