"""``stowplan agent``: the process in the pod; outside a pod the same on a folder, reporting to the terminal.

For several devices it is the process above them: one of its own kind for each, started, watched and ended together.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from stowplan_agent import switch_signal
from stowplan_agent.cli.output import agent_extra, exit_code, fail, user_errors
from stowplan_agent.cli.specification import SHAPE_HELP, local_spec
from stowplan_api.contract import Env
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.model import ContractError
from stowplan_api.quantity import parse_quantity

RUN_COMMAND: Final = "from stowplan_agent.cli import app; app()"
"""What a rank's process runs, with this process's own arguments."""
CONNECTIONS: Final = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
"""Of a rank's process, before it loads torch: streams that wait for another rank must not hold up the others."""
MEETING_SECONDS: Final = 300.0
"""How long ranks wait for one another where they meet. One that is gone, or goes back, is noticed at once."""
DRAIN_SECONDS: Final = 90.0
"""What ranks may take to end in good order beyond the grace that is given to requests."""
MEASURE_SECONDS: Final = 6 * 3600.0
"""The longest that a phase of all ranks may take. Each rank holds its own phases to shorter deadlines, and says so."""


def agent(
    path: Annotated[
        Path | None, typer.Argument(help="Folder of a checkpoint; in a pod, the operator's spec says which.")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPE_HELP)] = None,
    accelerator: Annotated[str | None, typer.Option(help="cuda or emulated.")] = None,
    gpus: Annotated[int, typer.Option(help="Devices that share each request, one process a device.", min=1)] = 1,
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
        from stowplan_agent.ranks.seat import take_seat

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    environment = dict(os.environ)
    if accelerator is not None:
        environment[Env.ACCELERATOR] = accelerator
    limit: int | None
    with user_errors(ContractError):
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
                gpus=gpus,
            )
            limit = parse_quantity(host_memory) if host_memory is not None else None
    seat = take_seat(patience=MEETING_SECONDS) if spec.ranks > 1 else None
    if spec.ranks > 1 and seat is None:
        raise typer.Exit(supervise(spec, os.environ))
    with agent_extra("agent"):
        from stowplan_agent.lifecycle import StartError
        from stowplan_agent.lifecycle.agent import Agent
        from stowplan_agent.lifecycle.settings import StartSettings
        from stowplan_agent.lifecycle.threads import limit_threads
        from stowplan_agent.serving.server import ServerError
        from stowplan_agent.transaction import FaultError

    with user_errors(ContractError, FaultError, ServerError, ApiServerError):
        limit_threads(ranks=spec.ranks)
        try:
            if seat is None:
                code = Agent(StartSettings.read(spec, environment, memory_limit=limit), identity).run()
            else:
                from stowplan_agent.lifecycle.following import Follower
                from stowplan_agent.ranks.company import Company

                company = Company(seat)
                settings = StartSettings.read(spec, environment, memory_limit=limit, company=company)
                code = Follower(settings, company).run() if seat.rank else Agent(settings, identity).run()
        except StartError as error:
            fail(str(error), exit_code(error.reason))
    raise typer.Exit(code)


def supervise(spec: DiffusionDeploymentSpec, environment: Mapping[str, str]) -> int:
    """Start one process a device and stay until none runs; the exit code for the whole."""
    from stowplan_agent.ranks.agreement import Deadlines
    from stowplan_agent.ranks.supervision import Supervisor
    from stowplan_agent.ranks.supervision.fleet import Grace
    from stowplan_agent.serving.settings import ServingSettings

    command = [sys.executable, "-c", RUN_COMMAND, *sys.argv[1:]]
    grace = Grace(after_request=ServingSettings.read(environment).grace + DRAIN_SECONDS)
    long = MEASURE_SECONDS
    deadlines = Deadlines(begin=2 * MEETING_SECONDS, measure=long, validate=long, roll_back=long)
    variables = {**CONNECTIONS, **environment}
    return Supervisor([command] * spec.ranks, variables=variables, grace=grace, deadlines=deadlines).run()
