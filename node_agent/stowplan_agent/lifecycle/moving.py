"""From the placement in force to another, in a safe order, as a transaction."""

from __future__ import annotations

from collections.abc import Callable

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.transaction import ApplyError, Faults, UndoError, apply, ordered
from stowplan_api.contract import PlacementReason
from stowplan_api.placement import Placement


def move_to(
    prepared: Prepared, target: Placement, *, interrupt: Callable[[], None] = lambda: None, faults: Faults | None = None
) -> None:
    """Make the moves; the accounts are checked after each. Raises `StartError` with all of them undone, else
    `RollbackFailed`; and what ``interrupt`` raised to end the start, with all of them undone as well."""
    engine = prepared.session.engine
    moves = ordered(prepared.record, prepared.session.placement(), target, prepared.seed)
    try:
        apply(engine, moves, check=prepared.session.check, interrupt=interrupt, faults=faults)
    except ApplyError as error:
        if isinstance(error.cause, (StartError, Stopped)):
            raise error.cause from None
        reason = PlacementReason.OUT_OF_MEMORY if error.out_of_memory else PlacementReason.APPLY_FAILED
        raise StartError(reason, str(error)) from error
    except UndoError as error:
        raise RollbackFailed(PlacementReason.FAILED, str(error)) from error
