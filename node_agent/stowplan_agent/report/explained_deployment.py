"""Why a deployment is where it is: the plan's reasons of each pod, its proof, and what was taken back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stowplan_agent.report.namespace import DeploymentView, condition
from stowplan_agent.report.start import reasons_of, rollback_rows
from stowplan_api.contract import PlacementCondition
from stowplan_api.residency_placement import ResidencyPlacementStatus

Json = Mapping[str, Any]


def explained(view: DeploymentView, placements: Iterable[Json]) -> dict[str, Any]:
    """The reasons of one deployment as plain JSON. ``placements`` are those of its namespace."""
    told = {one["metadata"]["name"]: one for one in placements}
    return {
        "kind": "DeploymentExplanation",
        "deployment": f"{view.namespace}/{view.name}",
        "ready": view.ready,
        "reason": view.reason,
        "message": view.message,
        "pods": [_pod(pod.name, pod.message, told.get(pod.name, {})) for pod in view.pods],
    }


def _pod(name: str, message: str, placement: Json) -> dict[str, Any]:
    status = read_status(placement)
    homes = {part.name: f"{part.mode}, {part.resident_layers} of {part.layers} layers resident" if part.layers else
             part.mode for part in status.components}  # fmt: skip
    why = reasons_of(status)
    return {
        "name": name,
        "phase": status.phase,
        "message": message,
        "components": [{"name": part, "placed": home, "because": why.get(part, "")} for part, home in homes.items()],
        "proof": condition(placement, PlacementCondition.VALIDATED).get("message", ""),
        "rollbacks": [
            dict(zip(("time", "why", "from", "to", "measured"), row, strict=True)) for row in rollback_rows(status)
        ],
    }


def read_status(placement: Json) -> ResidencyPlacementStatus:
    """The status as this version knows it; what another version wrote beside that is left out."""
    known = {field.alias or name for name, field in ResidencyPlacementStatus.model_fields.items()}
    raw = {name: value for name, value in (placement.get("status") or {}).items() if name in known}
    try:
        return ResidencyPlacementStatus.model_validate(raw)
    except ValueError:
        return ResidencyPlacementStatus()


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
    return lines
