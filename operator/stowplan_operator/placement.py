"""A ResidencyPlacement as the operator sees it: whose it is, and what its agent says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from stowplan_api.conditions import Condition, find
from stowplan_api.contract import PlacementCondition
from stowplan_api.residency_placement import ResidencyPlacementStatus
from stowplan_operator.kinds import Json
from stowplan_operator.pod import parse_time


@dataclass(frozen=True)
class PlacementView:
    """One ResidencyPlacement. A status that cannot be read counts as no status: nothing is proven by it."""

    name: str
    uid: str
    pod_uid: str
    generation: int
    """Of the DiffusionDeployment that its pod was rendered from."""
    terminating: bool
    status: ResidencyPlacementStatus

    def condition(self, type_: PlacementCondition) -> Condition | None:
        """One condition of the agent's."""
        return find(self.status.conditions, type_)

    @property
    def boot_id(self) -> str:
        """The boot that wrote the status; empty before the first."""
        return self.status.agent.boot_id if self.status.agent else ""

    @property
    def earlier_boots(self) -> int | None:
        """How many boots of the pod were before it; None where the agent does not know."""
        return self.status.agent.earlier_boots if self.status.agent else None

    @property
    def started_at(self) -> datetime | None:
        """When that boot began."""
        return parse_time(self.status.agent.started_at) if self.status.agent else None

    @property
    def validated_at(self) -> datetime | None:
        """When Validated became what it is."""
        validated = self.condition(PlacementCondition.VALIDATED)
        return parse_time(validated.last_transition_time) if validated else None


def view(raw: Json) -> PlacementView:
    """Read a ResidencyPlacement."""
    metadata, spec = raw["metadata"], raw["spec"]
    try:
        status = ResidencyPlacementStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        status = ResidencyPlacementStatus()
    return PlacementView(
        name=metadata["name"],
        uid=metadata["uid"],
        pod_uid=spec["pod"]["uid"],
        generation=spec["generation"],
        terminating=bool(metadata.get("deletionTimestamp")),
        status=status,
    )
