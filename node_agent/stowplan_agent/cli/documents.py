"""What ``frontier`` and ``report`` make: a table for the terminal, or a document of one of three forms."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stowplan_agent.cli.calibrate import unwritable, write_whole
from stowplan_agent.cli.output import WENT_WRONG, err, fail


class Form(StrEnum):
    """The form of a document."""

    TABLE = "table"
    JSON = "json"
    SVG = "svg"
    HTML = "html"


FormOption = Annotated[Form | None, typer.Option(help="table, json, svg or html; by the file's name if not given.")]
FileOption = Annotated[Path | None, typer.Option("-o", "--file", help="Where to write it; else standard output.")]


def form_of(output: Form | None, file: Path | None, *sources: Path | None) -> Form:
    """The form that was asked for, or that the file's name says.

    Ends the command, before anything is worked out, for a table in a file and for a file that cannot be written or is
    one of ``sources``.
    """
    suffix = file.suffix.lstrip(".").lower() if file is not None else ""
    form = output or (Form(suffix) if suffix in (Form.JSON, Form.SVG, Form.HTML) else Form.TABLE)
    if form is Form.TABLE and file is not None:
        fail(f"{file}: a table is for the terminal; give -o a name that ends in .json, .svg or .html, or an --output")
    if file is not None and (problem := unwritable(file, *sources)):
        fail(f"{file} cannot be written: {problem.replace('--record', '-o')}")
    return form


def deliver(form: Form, file: Path | None, show: Callable[[], None], text: Callable[[], str]) -> None:
    """Write the document to the file, or ``show`` the table, or print the text."""
    if file is not None:
        try:
            write_whole(file, text())
        except OSError as error:
            fail(f"{file} cannot be written ({error.strerror}); give another -o", WENT_WRONG)
        err.print(f"wrote {file}", soft_wrap=True)
    elif form is Form.TABLE:
        show()
    else:
        print(text(), end="")
