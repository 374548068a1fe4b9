"""The HTTP application: who answers what, and nothing else.

/liveness never asks about anything: it says that the process and its event loop live. /health is the readiness probe:
200 only while the door is open. Both are separate from the worker, so a long request never looks like a dead process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import choose_encoder

from stowplan_agent.serving import errors
from stowplan_agent.serving.bodies import Defaults, Seeds, ServingDefaults
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.routes import Desk, image_routes, video_routes
from stowplan_agent.serving.shelf import Shelf
from stowplan_api.contract import RECORD_DIR, STORED_START_PATH

__all__ = ["ServingDefaults", "create_app"]


def draw_seed() -> int:
    """A seed for a request that names none: 31 random bits, which every framework takes."""
    return secrets.randbelow(1 << 31)


def create_app(
    door: Door,
    queue: RequestQueue,
    metrics: AgentMetrics,
    defaults: Defaults,
    *,
    shelf: Shelf | None = None,
    seeds: Seeds = draw_seed,
    stored: Callable[[], str | None] = lambda: None,
) -> FastAPI:
    """The application. ``defaults`` may be a function that answers None until the model is known; ``stored`` is the
    stored start that this boot proved, as its file has it.
    """
    # No pages of documentation: they load scripts from the network. The document itself is at /openapi.json.
    app = FastAPI(title="Stowplan agent", version=version("stowplan"), docs_url=None, redoc_url=None)
    errors.install(app)
    desk = Desk(door, queue, defaults, seeds)

    @app.get("/liveness", tags=["probes"])
    async def liveness() -> dict[str, str]:
        """200 for as long as the process lives."""
        return {"status": "alive"}

    @app.get("/health", tags=["probes"])
    async def health() -> JSONResponse:
        """200 once the placement of this boot is validated, else 503 with the phase."""
        state = door.state
        return JSONResponse({"phase": state.phase, "message": state.message}, 200 if state.open else 503)

    @app.get("/metrics", tags=["probes"], response_class=Response)
    def exposition(request: Request) -> Response:
        """Prometheus or OpenMetrics text, as the scraper asks."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={"Content-Type": content_type})

    @app.get(STORED_START_PATH, tags=["fleet"], response_class=Response)
    async def stored_start() -> Response:
        """The stored start that this boot proved, for other pods to begin with; 404 while there is none."""
        text = stored()
        if text is None:
            why = f"only a plan that was proven leaves one, and only where {RECORD_DIR} is set"
            raise errors.ApiError(404, f"this boot has no stored start: {why}", code="not_found")
        return Response(text, media_type="application/json")

    @app.get("/v1/models", tags=["models"])
    async def models() -> dict[str, Any]:
        """The one model of this server; empty while it is not known yet."""
        known = desk.known()
        entry = [] if known is None else [{"id": known.model, "object": "model", "created": 0, "owned_by": "stowplan"}]
        return {"object": "list", "data": entry}

    app.include_router(image_routes(desk))
    app.include_router(video_routes(desk, Shelf() if shelf is None else shelf))
    return app
