"""The frontier in a terminal: one row a marked size, and the sentences under it."""

from __future__ import annotations

from rich.table import Table

from stowplan_agent.planning.links import have_peers
from stowplan_agent.report.facts import cells, headline, knee_line, same_machine, why_not_less
from stowplan_agent.report.frontier import Frontier, Held
from stowplan_agent.report.sizes import GIB


def frontier_table(found: Frontier) -> Table:
    """Size, seconds, what is lost against the next row, and for each component what stays on the card, in GiB."""
    table = Table(title=f"{found.record.model.name}: seconds by device memory")
    table.add_column("size", overflow="fold")
    for heading in ("seconds", "slower", "lost to next"):
        table.add_column(heading, justify="right", overflow="fold")
    for component in found.record.components:
        table.add_column(component.name, justify="right", overflow="fold")
    rows = found.marked
    for point in rows:
        name, _, *numbers = cells(found, point, rows)
        table.add_row(name, *numbers, *(_kept(one) for one in point.held))
    return table


def frontier_lines(found: Frontier) -> list[str]:
    """The headline, the knee, why not less, how to read the columns, and what a size means."""
    reason = why_not_less(found)
    elsewhere = "host memory or on the other cards" if have_peers(found.record) else "host memory"
    columns = f"Components: GiB on the card for good + while it runs, of all; the rest waits in {elsewhere}."
    bend = knee_line(found)
    return [headline(found), *([bend] if bend else []), *([reason] if reason else []), columns, same_machine(found)]


def _kept(one: Held) -> str:
    if one.always >= one.total:
        return "all"
    parts = [f"{one.always / GIB:.1f}" if one.always or not one.running else ""]
    parts += [f"+{one.running / GIB:.1f}"] if one.running else []
    return f"{''.join(parts)} of {one.total / GIB:.1f}"
