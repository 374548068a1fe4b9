"""The ``stowplan`` command: one file a command, each thin.

Commands import what they need when they run, so that ``stowplan plan`` works in the bare install, without torch.
"""

from __future__ import annotations

from typing import Any

import typer

from stowplan_agent.cli.agent import agent
from stowplan_agent.cli.calibrate import calibrate
from stowplan_agent.cli.cost import cost
from stowplan_agent.cli.estimate import estimate
from stowplan_agent.cli.explain import explain
from stowplan_agent.cli.frontier import frontier
from stowplan_agent.cli.inventory import inventory
from stowplan_agent.cli.plan import plan
from stowplan_agent.cli.report import report
from stowplan_agent.cli.streams import guarded_streams


class Commands(typer.Typer):
    """All commands; whichever runs, what it prints either arrives whole or ends it in one sentence."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the command that the arguments name, and exit."""
        with guarded_streams():
            return super().__call__(*arguments, **options)


app = Commands(
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
app.command()(report)
app.command()(cost)
app.command()(agent)
