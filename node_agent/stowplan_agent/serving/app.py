"""The HTTP application: who answers what, and nothing else.

/liveness never asks about anything: it says that the process and its event loop live. /health is the readiness probe:
200 only while the door is open. Both are separate from the worker, so a long request never looks like a dead process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from stowplan_agent.serving import errors
from stowplan_agent.serving.answers import without_unused
from stowplan_agent.serving.bodies import Defaults, Seeds, ServingDefaults
from stowplan_agent.serving.desk import Desk
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.heads import AnswerHeads
from stowplan_agent.serving.images import image_routes
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.outgoing import CountAnswers, Outgoing
from stowplan_agent.serving.plain import fleet_route, model_routes, probe_routes
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.residency import Residency, residency_route
from stowplan_agent.serving.videos import video_routes

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
    seeds: Seeds = draw_seed,
    stored: Callable[[], str | None] = lambda: None,
    residency: Callable[[], Residency | None] = lambda: None,
    deadline: float | None = None,
    outgoing: Outgoing | None = None,
) -> FastAPI:
    """The application. ``defaults`` may be a function that answers None until the model is known; ``stored`` is the
    stored start that this boot proved, as its file has it; ``residency`` what /residency shows; ``deadline`` the
    seconds that any request may take, waiting included; ``outgoing`` counts the answers on their way.
    """
    # No pages of documentation: they load scripts from the network. The document itself is at /openapi.json.
    # No redirects to a path without its last slash either: behind a gateway they lead to the wrong scheme.
    app = FastAPI(
        title="Stowplan agent", version=version("stowplan"), docs_url=None, redoc_url=None, redirect_slashes=False
    )
    errors.install(app)
    app.add_middleware(AnswerHeads)
    app.add_middleware(CountAnswers, outgoing=outgoing or Outgoing())
    desk = Desk(door, queue, defaults, seeds, deadline)
    app.include_router(probe_routes(door, metrics))
    app.include_router(model_routes(desk))
    app.include_router(image_routes(desk))
    app.include_router(video_routes(desk))
    app.include_router(fleet_route(stored))
    app.include_router(residency_route(door, residency))
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = without_unused(get_openapi(title=app.title, version=app.version, routes=app.routes))
    return app.openapi_schema
