"""What every command shares: two forms of output, and errors as one sentence.

People get tables on standard output and progress on standard error; machines get JSON. A command that fails prints one
sentence, and exits 2 for bad input, 3 where nothing fits, 1 for anything that went wrong while running.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, NoReturn

import typer
from rich.console import Console
from rich.table import Column, Table

from stowplan_api.contract import PlacementReason

WENT_WRONG: Final = 1
BAD_INPUT: Final = 2
INFEASIBLE: Final = 3

# Names come from folders and files: "[b]" and ":smile:" in one are its own letters.
out: Final = Console(highlight=False, markup=False, emoji=False)
err: Final = Console(stderr=True, highlight=False, markup=False, emoji=False)


class Output(StrEnum):
    """The form of the output."""

    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """One JSON document on standard output, indented for a terminal and compact for a pipe."""
    print(json.dumps(value, indent=1 if sys.stdout.isatty() else None, ensure_ascii=False))


def wide_table(*headings: str, right: Collection[str] = (), title: str | None = None) -> Table:
    """A table that folds what is too wide, where rich would cut names off; columns ``right`` are set to the right."""
    columns = (
        Column(heading, overflow="fold", justify="right" if heading in right else "left") for heading in headings
    )
    return Table(*columns, title=title)


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """Print one sentence on standard error and exit."""
    err.print(f"stowplan: {message}", style="red", soft_wrap=True)
    raise typer.Exit(code)


def exit_code(reason: PlacementReason) -> int:
    """The exit code of a start that failed for this reason."""
    if reason in (PlacementReason.MODEL_INVALID, PlacementReason.SPEC_INVALID):
        return BAD_INPUT
    if reason in (PlacementReason.INFEASIBLE, PlacementReason.OUT_OF_MEMORY):
        return INFEASIBLE
    return WENT_WRONG


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn the given exceptions, whose text is written for users, into one sentence and exit code 2."""
    try:
        yield
    except kinds as error:
        fail(str(error))


@contextmanager
def agent_extra(command: str) -> Iterator[None]:
    """Around the imports of a command that the bare install cannot run: say what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "stowplan").startswith("stowplan"):
            raise
        fail(f"{command} needs {error.name}, which the bare install leaves out; run: pip install 'stowplan[agent]'")
