"""The commands, from the program itself: what it says to ``--help``, and its examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from reference_pages.markdown_table import table
from stowplan_agent.cli import app
from stowplan_agent.cli.lessons import EXAMPLES, EXIT_CODES

INTRODUCTION = """# Commands

Made from the program. `stowplan --install-completion` completes commands and options in bash, zsh and fish; kubectl
finds the same program as `kubectl stowplan`, and completes that too. The bare install plans and reports;
`stowplan[cluster]` asks clusters, `stowplan[agent]` measures and serves.

![stowplan status in a terminal](../pictures/status.svg)
"""


def page() -> str:
    """The page as Markdown."""
    group: Any = typer.main.get_command(app)
    codes = table(("code", "meaning"), [(f"`{code}`", meaning) for code, meaning in EXIT_CODES.items()])
    parts = [INTRODUCTION, "## Exit codes\n", codes]
    for name, command in group.commands.items():
        parts += [f"## stowplan {name}\n", *_plain(command.help or ""), ""]
        rows = list(_rows(command.params))
        parts += [table(("argument or option", "default", "meaning"), rows), "Examples:\n"]
        parts += [f"    {text}\n    # {meaning}\n" for text, meaning in EXAMPLES[name]]
    return "\n".join(parts) + "\n"


def _plain(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield line.strip()


def _rows(params: Any) -> Iterator[tuple[str, str, str]]:
    for param in params:
        if param.name == "help":
            continue
        names = (
            ", ".join(f"`{one}`" for one in param.opts)
            if param.param_type_name == "option"
            else f"`{param.name.upper()}`"
        )
        default = param.default
        shown = (
            ""
            if default is None or default is False or callable(default)
            else f"`{getattr(default, 'value', default)}`"
        )
        yield names, "required" if param.required else shown, (getattr(param, "help", None) or "").replace("\\[", "[")
