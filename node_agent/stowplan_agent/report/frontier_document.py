"""The frontier for programs: the same points, marks, and knee as on the page, as one JSON document."""

from __future__ import annotations

from typing import Any

from stowplan_agent.report.frontier import Frontier, Point
from stowplan_agent.report.knee import knee
from stowplan_agent.report.provenance import estimate_note


def frontier_json(found: Frontier) -> dict[str, Any]:
    """The frontier as plain JSON: bytes and seconds. ``lossSeconds`` is against the next larger point.

    ``knee`` is null where there is none; ``proven`` is true of every point.
    """
    note = estimate_note(found.record)
    return {
        "kind": "Frontier",
        "model": found.record.model.to_json(),
        "workloads": [workload.to_json(exclude_none=True) for workload in found.record.workloads],
        "measuredOn": found.record.ranks[0].device,
        **({"estimate": note} if note else {}),
        "smallestBytes": found.smallest,
        "fullyResidentBytes": found.full,
        "knee": _knee_json(found),
        "points": [_point_json(found, point) for point in found.points],
    }


def _point_json(found: Frontier, point: Point) -> dict[str, Any]:
    line: dict[str, Any] = {
        "deviceMemory": point.size,
        "status": "Infeasible" if point.seconds is None else "Optimal",
        "proven": True,
        "seconds": point.seconds,
        "lossSeconds": found.loss(point, found.points),
    }
    if point.cards:
        line["cards"] = [card.name for card in point.cards]
    if point.plan is None:
        return line
    line["components"] = [
        {"name": one.component, "alwaysBytes": one.always, "whileRunningBytes": one.running, "totalBytes": one.total}
        | {"inWords": one.words}
        for one in point.held
    ]
    line["shortfalls"] = [one.to_json() for one in point.plan.shortfalls]
    line["wouldFit"] = [one.to_json() for one in point.plan.would_fit]
    return line


def _knee_json(found: Frontier) -> dict[str, Any] | None:
    bend = knee(found)
    if bend is None:
        return None
    return {
        "deviceMemory": bend.point.size,
        "savedSecondsPerGibBefore": bend.before,
        "savedSecondsPerGibBeyond": bend.after,
    }
