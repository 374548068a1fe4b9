"""What /residency shows of a start: the record, the plan in the status, and the placement in force."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any

from stowplan_agent.lifecycle.phases import SERVING
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.startup import Startup
from stowplan_agent.serving.residency import Residency
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord


def residency_of(startup: Startup, progress: Progress) -> Residency:
    """Both forms, of the moment in which they are asked for; from any thread, as they only read.

    Record and placement are shown once a placement was proven: before, weights may be on the move.
    """

    def proven() -> tuple[CalibrationRecord, Placement] | None:
        if progress.status.phase not in SERVING:
            return None
        return startup.prepared.record, startup.prepared.session.placement()

    def document() -> Mapping[str, Any]:
        status = {"status": progress.status.to_json(exclude_none=True)}
        if (found := proven()) is None:
            return status
        record, placement = found
        return status | {"record": record.to_json(), "placement": placement.to_json()}

    @cache
    def drawn() -> Any:
        # Most agents are never looked at, and drawing takes modules of its own.
        from stowplan_agent.report.frontier import frontier_around

        return frontier_around(startup.prepared.record)

    one_at_a_time = Lock()

    def cards() -> Any:
        """Of the record, which a boot has one of: worked out for the first who asks, while the others wait for it."""
        with one_at_a_time:
            return drawn()

    def page() -> str | None:
        if (found := proven()) is None:
            return None
        from stowplan_agent.report.request import requests_of
        from stowplan_agent.report.request_page import request_page

        return request_page(requests_of(*found), status=progress.status, frontier=cards())

    return Residency(document, page)
