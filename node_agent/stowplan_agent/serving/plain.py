"""The routes that only say something: probes, metrics, the model, and the stored start for other pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import choose_encoder

from stowplan_agent.serving.answers import Alive, Documented, Health, Model, Models, answer, other, text_of
from stowplan_agent.serving.desk import Desk
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_api.contract import RECORD_DIR, STORED_START_PATH

EXPOSITION: Final = ("text/plain", "application/openmetrics-text")


def probe_routes(door: Door, metrics: AgentMetrics) -> APIRouter:
    """/liveness, /health and /metrics."""
    router = APIRouter(tags=["probes"])

    @router.get("/liveness", responses=answer(Alive), response_model=None)
    async def liveness() -> dict[str, str]:
        """200 for as long as the process lives."""
        return {"status": "alive"}

    shut: Documented = {503: {"model": Health, "description": "Requests may not enter: the phase, and why."}}

    @router.get("/health", responses=answer(Health) | shut, response_model=None)
    async def health() -> Response:
        """200 once the placement of this boot is validated, else 503 with the phase."""
        state = door.state
        return JSONResponse({"phase": state.phase, "message": state.message}, 200 if state.open else 503)

    exposed = other({kind: text_of("an exposition") for kind in EXPOSITION}, "Metrics.")

    @router.get("/metrics", responses=exposed, response_class=Response)
    def exposition(request: Request) -> Response:
        """Prometheus or OpenMetrics text, as the scraper asks."""
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is none
            encode, content_type = choose_encoder("")
        return Response(encode(metrics.registry), headers={"Content-Type": content_type})

    return router


def model_routes(desk: Desk) -> APIRouter:
    """GET /v1/models and the model in it."""
    router = APIRouter(tags=["models"])

    def served() -> list[dict[str, Any]]:
        known = desk.known()
        return [] if known is None else [{"id": known.model, "object": "model", "created": 0, "owned_by": "stowplan"}]

    @router.get("/v1/models", responses=answer(Models), response_model=None)
    async def models() -> dict[str, Any]:
        """The one model of this server; empty while it is not known yet."""
        return {"object": "list", "data": served()}

    @router.get("/v1/models/{model}", responses=answer(Model, 404), response_model=None)
    async def model(model: str) -> dict[str, Any]:
        """The model of this name."""
        for one in served():
            if one["id"] == model:
                return one
        names = ", ".join(one["id"] for one in served()) or "none yet"
        message = f"model {model[:80]!r} is not served here; this server has {names}"
        raise ApiError(404, message, code="model_not_found", param="model")

    return router


def fleet_route(stored: Callable[[], str | None]) -> APIRouter:
    """The stored start that this boot proved."""
    router = APIRouter(tags=["fleet"])
    found = other({"application/json": {"schema": {"type": "object"}}}, "The file as it is stored.", 404)

    @router.get(STORED_START_PATH, responses=found, response_class=Response)
    def stored_start() -> Response:  # no coroutine: hashing a record of megabytes would hold up the probes
        """The stored start that this boot proved, for other pods to begin with; 404 while there is none."""
        text = stored()
        if text is None:
            why = f"only a plan that was proven leaves one, and only where {RECORD_DIR} is set"
            raise ApiError(404, f"this boot has no stored start: {why}", code="not_found")
        return Response(text, media_type="application/json")

    return router
