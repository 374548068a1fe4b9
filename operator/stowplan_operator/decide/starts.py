"""Fleet reuse: which proven starts to fetch for the next pods, and when those that are kept are void."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stowplan_api.conditions import timestamp
from stowplan_api.contract import ANNOTATION_RECALIBRATE, ANNOTATION_STORED_BY, PlacementCondition, PlacementReason
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.decide.gate import GateReason
from stowplan_operator.decide.rollout import JudgedPod, Rollout
from stowplan_operator.kinds import Json
from stowplan_operator.render import stored_starts
from stowplan_operator.render.naming import recalibration

AT_ONCE: Final = 8
"""Starts fetched for one deployment in one go: a large fleet that measures at once is one of a few kinds of card."""
AHEAD: Final = timedelta(minutes=5)
"""How far a node's clock may be ahead. What is of a later time would keep every start until then from being kept."""


@dataclass(frozen=True, order=True)
class ProvenStart:
    """A pod whose boot measured for itself and proved a plan. Ordered by when."""

    validated: str
    """RFC 3339 in UTC with whole seconds, so that the order of the texts is that of the times."""
    pod: str
    boot: str
    ip: str
    port: int

    @property
    def stamp(self) -> str:
        """What is kept of where a stored start came from."""
        return f"{self.validated} {self.pod} {self.boot}"


@dataclass(frozen=True)
class StartsToFetch:
    """Starts that are newer than what is kept, oldest first, and whom they are kept for."""

    dd: Json
    starts: tuple[ProvenStart, ...]


def starts_to_fetch(
    dd: Json, existing: Json | None, rollout: Rollout, spec: DiffusionDeploymentSpec, now: datetime
) -> StartsToFetch | None:
    """The newest starts that this generation's pods have proven since the one that was kept last; None for none."""
    if spec.residency.mode != "Auto":
        return None
    kept = _annotations(existing).get(ANNOTATION_STORED_BY, "")
    found = [start for judged in rollout.current if (start := _proven(judged, spec.serving.port, now)) is not None]
    newer = sorted(start for start in found if start.stamp > kept)[-AT_ONCE:]
    return StartsToFetch(dd, tuple(newer)) if newer else None


def voided_starts(dd: Json, existing: Json | None) -> Json | None:
    """The empty ConfigMap to apply where what is kept was measured before the user asked for measuring anew.

    It is written before the pods' new template is, so that none of them finds what it is not to use.
    """
    if existing is None or _annotations(existing).get(ANNOTATION_RECALIBRATE, "") == recalibration(dd):
        return None
    owners = {ref.get("uid") for ref in existing["metadata"].get("ownerReferences") or ()}
    if dd["metadata"]["uid"] not in owners:
        return None  # Somebody else's, of our name: not ours to empty, and agents use nothing that does not fit.
    manifest = stored_starts(dd, {}, "")
    manifest["metadata"]["uid"] = existing["metadata"]["uid"]
    return manifest


def _proven(judged: JudgedPod, port: int, now: datetime) -> ProvenStart | None:
    """A rollback leaves nothing to reuse, and what was reused is kept already."""
    placement = judged.placement
    if placement is None or judged.gate.reason is not GateReason.PLACEMENT_VALIDATED or not judged.pod.ip:
        return None
    measured = placement.condition(PlacementCondition.CALIBRATED)
    at = placement.validated_at
    if measured is None or measured.reason != PlacementReason.MEASURED or at is None or at > now + AHEAD:
        return None
    return ProvenStart(timestamp(at), judged.pod.name, placement.boot_id, judged.pod.ip, port)


def _annotations(existing: Json | None) -> dict[str, str]:
    return (existing or {}).get("metadata", {}).get("annotations") or {}
