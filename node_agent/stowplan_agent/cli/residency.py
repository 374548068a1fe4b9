"""What a pod answers at /residency, kept in a file: its record, its placement in force, and the status of its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stowplan_agent.cli.files import looked_into
from stowplan_api.model import ContractError, first_problem
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import ResidencyPlacementStatus


@dataclass(frozen=True)
class Residency:
    """One pod, at the moment in which it was asked."""

    record: CalibrationRecord
    placement: Placement | None
    status: ResidencyPlacementStatus | None


def read_residency(path: Path) -> Residency:
    """A record, or the answer of a pod in which there is one. Raises `ContractError` naming what is wrong."""
    data = _answer(path)
    if data is None:
        return Residency(CalibrationRecord.read(path), None, None)
    if data["record"] is None:
        phase = data.get("phase", "unknown")
        raise ContractError(f"{path}: this pod, in phase {phase}, has no record yet; ask again when it is Ready")
    placement, status = data.get("placement"), data.get("status")
    return Residency(
        CalibrationRecord.from_json(data["record"], source=f"{path}: record"),
        None if placement is None else Placement.from_json(placement, source=f"{path}: placement"),
        None if status is None else _status(status, path),
    )


def _answer(path: Path) -> dict[str, Any] | None:
    """The file's content if it is such an answer; None for anything else, which reading it as a record explains."""
    data = looked_into(path)
    return data if "kind" not in data and "record" in data else None


def _status(data: object, path: Path) -> ResidencyPlacementStatus:
    try:
        return ResidencyPlacementStatus.model_validate(data)
    except ValidationError as error:
        raise ContractError(first_problem(error, f"{path}: status", "ResidencyPlacementStatus")) from None
