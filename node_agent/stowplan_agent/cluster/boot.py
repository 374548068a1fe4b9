"""The first thing a boot says: it is new, and nothing of it is proven.

A restarted container finds the status of its predecessor, gate open. The first write replaces it, so that the gate
closes at once (KUBERNETES.md, The gate); only the history of rollbacks and the times of conditions that did not flip
are carried over.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from stowplan_api.conditions import Condition, Status, set_condition, timestamp
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.residency_placement import Agent, ResidencyPlacementStatus

_FIRST: Final[tuple[tuple[PlacementCondition, Status], ...]] = (
    (PlacementCondition.CALIBRATED, "Unknown"),
    (PlacementCondition.APPLIED, "Unknown"),
    (PlacementCondition.VALIDATED, "False"),
    (PlacementCondition.ROLLED_BACK, "False"),
    (PlacementCondition.READY, "False"),
)


def new_agent(now: datetime, version: str) -> Agent:
    """The identity of this boot: a fresh random id, and when it began."""
    return Agent(boot_id=str(uuid.uuid4()), started_at=timestamp(now), version=version)


def first_status(
    agent: Agent, generation: int, former: ResidencyPlacementStatus | None, now: datetime
) -> ResidencyPlacementStatus:
    """The status a boot begins with. ``generation`` is that of the RP's spec; ``former`` is what the last boot left."""
    conditions: tuple[Condition, ...] = former.conditions if former else ()
    for type_, status in _FIRST:
        conditions = set_condition(
            conditions, type_, status, PlacementReason.STARTING, "the agent starts", generation=generation, now=now
        )
    return ResidencyPlacementStatus(
        observed_generation=generation,
        agent=agent,
        rollbacks=former.rollbacks if former else (),
        conditions=conditions,
    )


def former_status(data: Any) -> ResidencyPlacementStatus | None:
    """The status found in the cluster; None when there is none, or an agent of another version wrote other fields."""
    try:
        return ResidencyPlacementStatus.model_validate(data) if data else None
    except ValidationError:
        return None
