"""Why a deployment is where it is: the plan's reasons of each pod, its proof, and what was taken back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from stowplan_agent.report.namespace import DeploymentView, PodView
from stowplan_agent.report.objects import Json, condition, key, printable
from stowplan_agent.report.start import reasons_of, rollback_rows
from stowplan_api.contract import PlacementCondition
from stowplan_api.residency_placement import ResidencyPlacementStatus


def explained(view: DeploymentView, placements: Iterable[Json]) -> dict[str, Any]:
    """The reasons of one deployment as plain JSON. ``placements`` are those of its namespace."""
    told = {key(one)[1]: one for one in placements}
    return {
        "kind": "DeploymentExplanation",
        "deployment": f"{view.namespace}/{view.name}",
        "ready": view.ready,
        "reason": view.reason,
        "message": view.message,
        "pods": [_pod(pod, told.get(pod.name, {})) for pod in view.pods],
    }


def _pod(pod: PodView, placement: Json) -> dict[str, Any]:
    status, odd = read_status(placement)
    homes = {part.name: f"{part.mode}, {part.resident_layers} of {part.layers} layers resident" if part.layers else
             part.mode for part in status.components}  # fmt: skip
    why = reasons_of(status)
    return {
        "name": pod.name,
        "phase": pod.phase,
        "message": pod.message or (f"this version cannot read {', '.join(odd)} of its status" if odd else ""),
        "components": [{"name": part, "placed": home, "because": why.get(part, "")} for part, home in homes.items()],
        "proof": condition(placement, PlacementCondition.VALIDATED).get("message", ""),
        "rollbacks": [
            dict(zip(("time", "why", "from", "to", "measured"), row, strict=True)) for row in rollback_rows(status)
        ],
    }


def read_status(placement: Json) -> tuple[ResidencyPlacementStatus, list[str]]:
    """The status as this version knows it, and the fields of it that it cannot read, which are left out.

    So is what another version wrote beside those that are known, of which nobody needs to hear.
    """
    found = placement.get("status")
    known = {field.alias or name for name, field in ResidencyPlacementStatus.model_fields.items()}
    raw = {name: value for name, value in found.items() if name in known} if isinstance(found, Mapping) else {}
    try:
        return ResidencyPlacementStatus.model_validate(raw), []
    except ValidationError as error:
        odd = sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]})
    kept = {name: value for name, value in raw.items() if name not in odd}
    try:
        return ResidencyPlacementStatus.model_validate(kept), odd
    except ValidationError:
        return ResidencyPlacementStatus(), sorted(raw)


def explained_lines(found: Mapping[str, Any]) -> list[str]:
    """The same for people, a line each."""
    lines = [f"{found['deployment']}: {found['reason']}" + (f": {found['message']}" if found["message"] else "")]
    for pod in found["pods"]:
        lines += ["", f"pod {pod['name']}: {pod['phase']}"]
        lines += [f"  {pod['message']}"] if pod["message"] else []
        for part in pod["components"]:
            lines.append(f"  {part['name']}: {part['placed']}")
            lines += [f"    because {part['because']}"] if part["because"] else []
        lines += [f"  proof: {pod['proof']}"] if pod["proof"] else []
        for one in pod["rollbacks"]:
            lines.append(f"  taken back at {one['time']}: {one['why']}")
            lines.append(f"    from {one['from']}; to {one['to']}; measured {one['measured'] or 'nothing'}")
    return [printable(line) for line in lines]
