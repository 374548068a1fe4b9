"""The views of a namespace in a terminal: a line a deployment, a line a pod, and a bar of each device's memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from stowplan_agent.report.namespace import STEPS, DeploymentView, Memory, PodView
from stowplan_api.quantity import for_people

BAR: Final = 26
"""Letters of a memory bar, where there is room for them."""
SHORTEST_BAR: Final = 10
MINUTES_FROM: Final = 600
"""Seconds from which a phase is said to run for minutes."""
COLOURS: Final = ("blue", "green", "yellow", "magenta", "red", "cyan")
STATES: Final = {"Ready": "green", "RolledBack": "yellow", "Failed": "red"}
LEGEND: Final = "█ weights by component   ▒ until the peak of a request   · free   ░ reserve"


def namespace_view(found: Sequence[DeploymentView], where: str) -> RenderableType:
    """Everything, or one sentence where there is nothing."""
    if not found:
        return Text(f"There is no DiffusionDeployment in {where}. Next: kubectl apply -f examples/wan22.yaml")
    parts: list[RenderableType] = []
    for view in found:
        parts += [*_heading(view), _pods(view.pods), Text()]
    drawn = any(pod.memory is not None for view in found for pod in view.pods)
    return Group(*parts, *([Text(LEGEND, style="dim")] if drawn else []))


def _heading(view: DeploymentView) -> Iterable[RenderableType]:
    style = "green" if view.well else "yellow" if view.ready == "Unknown" else "red"
    line = Text.assemble((f"{view.namespace}/{view.name}", "bold"), "  ", (view.reason, style))
    line.append(f"  {view.validated}/{view.replicas} validated")
    line.append(f"  {view.seconds} a request" if view.seconds else "")
    if view.rollbacks:
        line.append(f"  {view.rollbacks} rollback{'s' if view.rollbacks > 1 else ''}", style="yellow")
    yield line
    yield Text(view.model, style="dim")
    if view.message:
        yield Text(view.message, style=style)


def _pods(pods: Sequence[PodView]) -> RenderableType:
    if not pods:
        return Text("  no pods", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("  POD", "PHASE", "GATE", "DEVICE MEMORY", "PEAK", "REQUEST"):
        table.add_column(heading, overflow="fold", header_style="dim")
    for pod in pods:
        memory = pod.memory
        table.add_row(
            Text(f"  {pod.name}"),
            Text(phase_words(pod), style=STATES.get(pod.phase, "cyan")),
            Text(pod.gate, style={"open": "green", "closed": "red"}.get(pod.gate, "dim")),
            Bar(memory) if memory is not None else Text(""),
            Text(f"{for_people(memory.peak)} of {for_people(memory.capacity)}" if memory is not None else ""),
            Text(pod.seconds),
        )
    said = [Text(f"  {pod.name}: {pod.message}", style=STATES.get(pod.phase, "yellow")) for pod in pods if pod.message]
    return Group(table, *said)


def phase_words(pod: PodView) -> str:
    """The phase; where it is on the way, how far and for how long."""
    step = f" {STEPS.index(pod.phase) + 1}/{len(STEPS)}" if pod.phase in STEPS else ""
    if pod.since is None:
        return f"{pod.phase}{step}"
    long = pod.since >= MINUTES_FROM
    return f"{pod.phase}{step}, {pod.since / 60:.0f} min" if long else f"{pod.phase}{step}, {pod.since:.0f} s"


class Bar:
    """A device as one line, as long as its column lets it be."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """How short and how long it may be."""
        return Measurement(SHORTEST_BAR, BAR)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        yield bar(self._memory, min(options.max_width, BAR))


def bar(memory: Memory, width: int = BAR) -> Text:
    """A device as one line: each component's weights, then up to the peak, then what is free, then the reserve."""
    if memory.capacity <= 0:
        return Text("")
    drawn, ends = Text(), 0
    held = 0
    for number, (_, nbytes) in enumerate(memory.components):
        held += nbytes
        end = _letters(held, memory.capacity, width)
        drawn.append("█" * (end - ends), style=COLOURS[number % len(COLOURS)])
        ends = max(end, ends)
    free = width * (memory.capacity - memory.reserve) // memory.capacity  # rounded down: a reserve is seen
    peak = _letters(memory.peak, memory.capacity, width)
    for letters, letter in ((peak, "▒"), (free, "·"), (width, "░")):
        end = max(letters, ends)
        drawn.append(letter * (end - ends), style="dim")
        ends = end
    return drawn


def _letters(nbytes: int, capacity: int, width: int) -> int:
    return min(round(width * nbytes / capacity), width)


def namespace_json(found: Iterable[DeploymentView]) -> dict[str, Any]:
    """The same for programs: bytes and seconds."""
    return {"kind": "NamespaceStatus", "deployments": [dataclasses.asdict(view) for view in found]}
