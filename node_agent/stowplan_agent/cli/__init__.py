"""The ``stowplan`` command: one file a command, each thin.

Commands import what they need when they run, so that ``stowplan plan`` works in the bare install, without torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import typer

from stowplan_agent.cli.agent import agent
from stowplan_agent.cli.calibrate import calibrate
from stowplan_agent.cli.cost import cost
from stowplan_agent.cli.estimate import estimate
from stowplan_agent.cli.explain import explain
from stowplan_agent.cli.frontier import frontier
from stowplan_agent.cli.inventory import inventory
from stowplan_agent.cli.lessons import examples_of, exit_codes
from stowplan_agent.cli.plan import plan
from stowplan_agent.cli.report import report
from stowplan_agent.cli.status import status
from stowplan_agent.cli.streams import guarded_streams

PLUGIN: Final = "kubectl-stowplan"
"""Under which name kubectl finds its plug-in ``stowplan``."""


class Commands(typer.Typer):
    """All commands; whichever runs, what it prints either arrives whole or ends it in one sentence."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the command that the arguments name, and exit."""
        if Path(sys.argv[0]).name == PLUGIN:
            options.setdefault("prog_name", PLUGIN.replace("-", " "))
        with guarded_streams():
            return super().__call__(*arguments, **options)


app = Commands(
    help="Measure a diffusion model, solve for where its weights should live, prove it, serve it.",
    epilog=exit_codes(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (inventory, estimate, calibrate, plan, explain, frontier, report, cost, agent, status):
    app.command(epilog=examples_of(command.__name__))(command)
