"""The frontier as one page for whoever decides which card to buy: no script, no host, light and dark.

From top to bottom: the sentence, three numbers, the curve, what stays on the card, a table, and how to read it. What
is estimated says so first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from stowplan_agent.report.bars import bars
from stowplan_agent.report.curve import curve
from stowplan_agent.report.document import broad_and_slim, cell, document, scrolls
from stowplan_agent.report.document import tiles as tiles_of
from stowplan_agent.report.drawing import NARROW, label
from stowplan_agent.report.facts import cells, headline, kept, same_machine, tiles, why_not_less
from stowplan_agent.report.frontier import Frontier, Point
from stowplan_agent.report.provenance import estimate_note
from stowplan_api.record import Workload

HEADINGS: Final = ("size", "usable", "seconds a request", "against the fastest", "lost against the next size")


def page(found: Frontier) -> str:
    """The whole page: XHTML-shaped HTML, so that any XML parser can read it back."""
    model = found.record.model
    note = estimate_note(found.record)
    shapes = "; ".join(_shape(workload) for workload in found.record.workloads)
    reason = why_not_less(found)
    body = [
        f"<h1>{escape(model.name)}: which card is worth its price?</h1>",
        f'<p class="sub">{escape(shapes)}; {escape(found.record.ranks[0].device)}; {len(found.points)} sizes, each '
        "with its proven fastest placement</p>",
        f'<p class="note">{escape(note)}</p>' if note else "",
        f'<p class="head">{escape(headline(found))}</p>',
        f'<p class="sub">{escape(_whose(found))}</p>',
        tiles_of(tiles(found)),
        "<h2>Seconds of a request by device memory</h2>",
        broad_and_slim(curve(found, style=False), curve(found, style=False, width=NARROW)),
        f'<p class="foot">{escape(same_machine(found))}</p>',
        f'<p class="foot">{escape(reason)}</p>' if reason else "",
        "<h2>What stays on the card</h2>",
        scrolls("What stays on the card", bars(found, style=False)),
        "<h2>Size by size</h2>",
        scrolls("Size by size", _table(found, found.marked, details=True)),
        f"<details><summary>All {len(found.points)} sizes</summary>"
        f"{scrolls('All sizes', _table(found, found.points, details=False))}</details>",
        _reading(found),
    ]
    return document(f"{model.name}: seconds by device memory", body)


def _whose(found: Frontier) -> str:
    """Whose seconds these are, before anyone takes them for those of another card."""
    ranks = found.record.ranks
    device = ranks[0].device if len(ranks) == 1 else f"{len(ranks)} x {ranks[0].device}"
    average = ", on average by weight over the workloads" if len(found.record.workloads) > 1 else ""
    return f"All seconds are those of {device} with so much memory{average}; only the memory differs from size to size."


def _shape(workload: Workload) -> str:
    frames = f", {workload.frames} frames" if workload.frames > 1 else ""
    return f"{workload.width} x {workload.height}{frames}, {workload.steps} steps"


def _table(found: Frontier, points: Iterable[Point], *, details: bool) -> str:
    rows = tuple(points)
    headings = (*HEADINGS, "what stays on the card") if details else HEADINGS
    head = "".join(cell("th", text, number=0 < place < len(HEADINGS)) for place, text in enumerate(headings))
    lines = []
    for point in rows:
        columns = [cell("td", text, number=place > 0) for place, text in enumerate(cells(found, point, rows))]
        if details:
            names = ", ".join(card.name for card in point.cards)
            columns[0] = f'<td><b>{escape(label(point))}</b><br/><span class="foot">{escape(names)}</span></td>'
            columns.append(f"<td>{_list(kept(point))}</td>")
        start = '<tr class="no">' if point.seconds is None else "<tr>"
        lines.append(f"{start}{''.join(columns)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _list(words: Iterable[str]) -> str:
    return '<ul class="plain">' + "".join(f"<li>{escape(text)}</li>" for text in words) + "</ul>"


def _reading(found: Frontier) -> str:
    lines = [
        "Between two sizes a request takes at most as long as at the smaller one, so the curve goes in steps.",
        "“For good”: always on the card. “While it runs”: brought in when its component starts, and dropped after. "
        "“Streamed”: passes through a small ring of buffers while the component computes.",
        *found.record.provenance,
    ]
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>How to read this</h2><ul class="foot">{items}</ul>'
