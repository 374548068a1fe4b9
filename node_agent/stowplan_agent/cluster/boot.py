"""The first thing a boot says: it is new, and nothing of it is proven.

A restarted container finds the status of its predecessor, gate open. The first write replaces it, so that the gate
closes at once (KUBERNETES.md, The gate); only the history of rollbacks and the times of conditions that did not flip
are carried over. It also says which boot of its pod it is: clocks may be set back, and a count cannot.
"""

from __future__ import annotations

import os
import uuid
from datetime import datetime
from pathlib import Path
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


def new_agent(now: datetime, version: str, earlier_boots: int | None = None) -> Agent:
    """The identity of this boot: a fresh random id, when it began, and how many of its pod were before it."""
    return Agent(boot_id=str(uuid.uuid4()), started_at=timestamp(now), version=version, earlier_boots=earlier_boots)


def count_boot(folder: Path, pod_uid: str) -> int | None:
    """Count this boot, and say how many of its pod were counted before. Once a process, before it says anything.

    ``folder`` is to outlive a container and may be shared with other pods. None where nothing can be kept there.
    """
    try:
        with (folder / f".stowplan-boots-{pod_uid}").open("ab") as count:
            before = count.tell()
            count.write(b".")
            count.flush()
            os.fsync(count.fileno())
            return before
    except OSError:
        return None


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
