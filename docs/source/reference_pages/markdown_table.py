"""A table in Markdown, whatever its cells have in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under headings. Bars and line ends in a cell are made harmless."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """Code stays as it is; elsewhere an angle bracket is a letter and no tag."""
    parts = " ".join(text.replace("|", "\\|").split()).split("`")
    return "`".join(part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts))
