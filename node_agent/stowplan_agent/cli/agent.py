"""``stowplan agent``: the process in the pod; outside a pod the same on a folder, reporting to the terminal."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from stowplan_agent import switch_signal
from stowplan_agent.cli.output import agent_extra, exit_code, fail, user_errors
from stowplan_agent.cli.specification import SHAPE_HELP, local_spec
from stowplan_api.contract import Env
from stowplan_api.model import ContractError
from stowplan_api.quantity import parse_quantity


def agent(
    path: Annotated[
        Path | None, typer.Argument(help="Folder of a checkpoint; in a pod, the operator's spec says which.")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    accelerator: Annotated[str | None, typer.Option(help="cuda or emulated.")] = None,
    device_memory: Annotated[str | None, typer.Option(help="Most device memory to use.")] = None,
    device_reserve: Annotated[str | None, typer.Option(help="Device memory kept free.")] = None,
    host_memory: Annotated[str | None, typer.Option(help="Host memory that this process may use.")] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    port: Annotated[int, typer.Option(help="Port of the HTTP server.", min=1024, max=65535)] = 8000,
) -> None:
    """Inventory, measure, plan, apply, validate, and serve on HTTP once that is proven."""
    switch_signal.hold_back()
    with agent_extra("agent"):
        from stowplan_agent.cluster.client import ApiServerError
        from stowplan_agent.cluster.identity import read_identity
        from stowplan_agent.lifecycle import StartError
        from stowplan_agent.lifecycle.agent import Agent
        from stowplan_agent.lifecycle.settings import StartSettings
        from stowplan_agent.lifecycle.threads import limit_threads
        from stowplan_agent.serving.server import ServerError
        from stowplan_agent.transaction import FaultError

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    environment = dict(os.environ)
    if accelerator is not None:
        environment[Env.ACCELERATOR] = accelerator
    limit: int | None
    with user_errors(ContractError, FaultError, ServerError, ApiServerError):
        identity = read_identity(environment)
        if identity is not None:
            spec, limit = identity.spec, identity.memory_limit
        elif path is None or not shape:
            fail("give a checkpoint's folder and a --shape; without them the operator's environment is needed")
        else:
            spec = local_spec(
                path,
                shape,
                dtype=dtype,
                device_memory=device_memory,
                device_reserve=device_reserve,
                host_memory=host_memory,
                port=port,
            )
            limit = parse_quantity(host_memory) if host_memory is not None else None
        limit_threads()
        settings = StartSettings.read(spec, environment, memory_limit=limit)
        try:
            code = Agent(settings, identity).run()
        except StartError as error:
            fail(str(error), exit_code(error.reason))
    raise typer.Exit(code)
