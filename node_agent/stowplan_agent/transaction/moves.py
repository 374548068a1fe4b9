"""What must move, and in which order: the current placement against the target, by subtraction."""

from __future__ import annotations

from stowplan_agent.planning import moves
from stowplan_api.placement import Placement
from stowplan_api.plan import Move
from stowplan_api.record import CalibrationRecord


def difference(current: Placement, target: Placement) -> tuple[Move, ...]:
    """One move for each component whose entry differs, in the target's order; none when nothing does.

    Raises ValueError when the placements do not name the same components: a placement says everything.
    """
    before = {component.name: component for component in current.components}
    after = {component.name: component for component in target.components}
    for name in before.keys() ^ after.keys():
        side = "the target" if name in before else "the current placement"
        raise ValueError(f"{side} has no entry for component {name}; a placement names every component")
    return tuple(
        Move(component=name, from_=before[name], to=entry) for name, entry in after.items() if before[name] != entry
    )


def ordered(record: CalibrationRecord, current: Placement, target: Placement, lean: Placement) -> tuple[Move, ...]:
    """The moves of `difference` in an order that stays within the record's limits after each single one.

    That is the planner's safe order. Entries that place the same bytes come first: they take nothing. Where no order
    is safe, everything that changes first goes where ``lean`` has it, the placement that needs least of the device,
    and from there to the target. More is moved then, and on the host more may be held on the way; whatever does not fit
    is undone like any failure.
    """
    wanted = {move.component: move for move in difference(current, target)}
    safe = moves(record, current, target)
    if safe is not None:
        names = [move.component for move in safe]
        same = [name for name in wanted if name not in names]
        return tuple(wanted[name] for name in (*same, *names))
    through = tuple(
        lean.entry(entry.name) if entry.name in wanted else current.entry(entry.name) for entry in target.components
    )
    middle = Placement(components=through)
    return (*difference(current, middle), *difference(middle, target))
