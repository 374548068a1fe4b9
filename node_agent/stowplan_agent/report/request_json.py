"""A request's timeline as plain JSON, for whoever draws it elsewhere: bytes and seconds, nothing rounded."""

from __future__ import annotations

from typing import Any

from stowplan_agent.report.provenance import estimate_note
from stowplan_agent.report.request import Request
from stowplan_agent.report.stage import Stage


def request_json(found: Request) -> dict[str, Any]:
    """The timeline as plain JSON: bytes and seconds."""
    note = estimate_note(found.record)
    return {
        "kind": "RequestTimeline",
        "model": found.record.model.to_json(),
        "workload": found.workload.to_json(exclude_none=True),
        **({"estimate": note} if note else {}),
        "device": found.rank.device,
        "rank": found.rank.rank,
        "capacityBytes": found.rank.capacity_bytes,
        "seconds": found.seconds,
        "waitingSeconds": found.waiting,
        "peakBytes": found.highest.peak,
        "peakStage": found.highest.number,
        "tightestStage": found.tightest.number,
        "leftBytes": found.left(found.tightest),
        "placement": found.placement.to_json(),
        "stages": [_stage_json(stage) for stage in found.stages],
    }


def _stage_json(stage: Stage) -> dict[str, Any]:
    return {
        "number": stage.number,
        "interval": stage.interval,
        "component": stage.component,
        "entry": stage.entry,
        "passes": stage.passes,
        "startSeconds": stage.start,
        "seconds": stage.seconds,
        "layerSeconds": stage.layers,
        "outsideLayerSeconds": stage.outside_layers,
        "waitingSeconds": stage.waiting,
        "peakBytes": stage.peak,
        "reserveBytes": stage.reserve,
        "outsideBytes": stage.outside,
        "activationBytes": stage.activations,
        "adaptive": stage.adaptive,
        "components": [
            {"name": share.component, "alwaysBytes": share.always, "visitingBytes": share.visiting}
            for share in stage.held
        ],
    }
