"""What must move: the current placement against the target, by subtraction."""

from __future__ import annotations

from stowplan_api.placement import Placement
from stowplan_api.plan import Move


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
