"""GET /residency: what was measured, what is planned and where everything is, for a program or for a person.

The same address gives JSON, or a page to whoever prefers HTML, as browsers do. Who makes the two is told from outside:
this room knows neither records nor placements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from stowplan_agent.serving.answers import other, text_of
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.errors import not_ready

HTML: Final = "text/html"
JSON: Final = "application/json"
_SCHEMA: Final = {
    "type": "object",
    "required": ["phase", "message", "status", "record", "placement"],
    "additionalProperties": False,
    "properties": {
        "phase": {"type": "string"},
        "message": {"type": "string", "description": "why the door is closed; empty when it is open"},
        "status": {
            "type": ["object", "null"],
            "description": "that of the ResidencyPlacement, with the plan",
        },
        "record": {"type": ["object", "null"], "description": "the CalibrationRecord; null until there is one"},
        "placement": {"type": ["object", "null"], "description": "the Placement in force; null until there is one"},
    },
}


@dataclass(frozen=True)
class Residency:
    """Both forms; each is made when it is asked for."""

    document: Callable[[], Mapping[str, Any]]
    """``status``, ``record`` and ``placement``, those that there are."""
    page: Callable[[], str | None]
    """HTML; None until there is something to show."""


def residency_route(door: Door, residency: Callable[[], Residency | None]) -> APIRouter:
    """GET /residency. ``residency`` answers None while the start has not begun."""
    router = APIRouter(tags=["residency"])
    contents = {JSON: {"schema": _SCHEMA}, HTML: text_of("the same as one page, with pictures")}
    document = other(contents, "Record, plan and placement.", 503)

    @router.get("/residency", responses=document, response_class=Response)
    def shown(request: Request) -> Response:
        """Record, plan and placement: JSON, or a page for whoever prefers text/html."""
        known, state = residency(), door.state
        if prefers_html(request.headers.get("accept", "")):
            page = None if known is None else known.page()
            if page is None:
                raise not_ready(state.phase, state.message)
            return HTMLResponse(page, headers={"Vary": "Accept"})
        made: dict[str, Any] = {"phase": state.phase, "message": state.message}
        made |= {"status": None, "record": None, "placement": None} | dict({} if known is None else known.document())
        return JSONResponse(made, headers={"Vary": "Accept"})

    return router


def prefers_html(accept: str) -> bool:
    """Whether an Accept header puts text/html before JSON; whoever names neither, or likes both alike, gets JSON."""
    return _quality(accept, HTML) > _quality(accept, JSON)


def _quality(accept: str, media_type: str) -> float:
    """What the most exact of the header's ranges gives the type (RFC 9110, 12.5.1); 0 where none is of it."""
    found: dict[int, float] = {}
    for part in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        ranges = ("*/*", media_type.split("/")[0] + "/*", media_type)
        if name in ranges:
            found[ranges.index(name)] = _q(parameters)
    return found[max(found)] if found else 0.0


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
