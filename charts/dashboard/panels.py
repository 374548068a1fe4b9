"""What a dashboard is made of, as plain values: rows, panels, queries and marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Look = Literal["lines", "stack", "bars", "stat", "gauge"]


@dataclass(frozen=True)
class Query:
    """One query and what its series are called."""

    expr: str
    legend: str
    limit: bool = False
    """A limit, drawn as a line above a stack and not part of it."""


@dataclass(frozen=True)
class Panel:
    """One question, and its answer. ``unit`` is Grafana's name of it; ``width`` of 24 columns."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    look: Look = "lines"
    width: int = 12


@dataclass(frozen=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Mark:
    """An annotation: a moment, drawn through every panel."""

    name: str
    expr: str
    colour: str
