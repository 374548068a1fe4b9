"""The ``stowplan`` command: one file a command, each thin.

Commands import what they need when they run, so that ``stowplan plan`` works in the bare install, without torch.
"""

from __future__ import annotations

import typer

from stowplan_agent.cli.agent import agent
from stowplan_agent.cli.calibrate import calibrate
from stowplan_agent.cli.cost import cost
from stowplan_agent.cli.estimate import estimate
from stowplan_agent.cli.explain import explain
from stowplan_agent.cli.frontier import frontier
from stowplan_agent.cli.inventory import inventory
from stowplan_agent.cli.plan import plan

app = typer.Typer(
    help="Measure a diffusion model, solve for where its weights should live, prove it, serve it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(inventory)
app.command()(estimate)
app.command()(calibrate)
app.command()(plan)
app.command()(explain)
app.command()(frontier)
app.command()(cost)
app.command()(agent)
