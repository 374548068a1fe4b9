"""A record as one page: its request second by second. No script, no host, light and dark, on a phone too.

From top to bottom: the sentence, four numbers, memory by stage, where the seconds go, the stages and the components in
tables, and how to read it. A record of several shapes has one such part for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from stowplan_agent.report.drawing import STYLE
from stowplan_agent.report.explanation import infeasible_lines
from stowplan_agent.report.page import PAGE_STYLE
from stowplan_agent.report.provenance import estimate_note, is_estimate
from stowplan_agent.report.request import Request
from stowplan_agent.report.request_facts import HEADINGS, cells, headline, homes, shape_of, size, tiles
from stowplan_agent.report.request_picture import timeline
from stowplan_agent.report.request_seconds import seconds_bars

SCROLLED: Final = (
    ".wide svg{min-width:760px} .wide table{min-width:720px} td.w{min-width:180px} td.k,td.n{white-space:nowrap}"
)
"""On a phone pictures and tables keep their size and are moved sideways, rather than shrunk beyond reading."""


def request_page(found: Sequence[Request]) -> str:
    """The whole page for the workloads of one record: XHTML-shaped HTML, so that any XML parser can read it back."""
    record = found[0].record
    note = estimate_note(record)
    machine = f"{found[0].rank.device} with {size(found[0].rank.capacity_bytes)}"
    shapes = "; ".join(shape_of(request.workload) for request in found)
    ranks = f", rank {found[0].rank.rank} of {len(record.ranks)}, which has least room" if len(record.ranks) > 1 else ""
    body = [
        f"<h1>{escape(record.model.name)}: one request, second by second</h1>",
        f'<p class="sub">{escape(shapes)}; {escape(record.model.pipeline)} on {escape(machine + ranks)}, '
        f"{escape(_placed(found[0]))}</p>",
        f'<p class="note">{escape(note)}</p>' if note else "",
        _short(found[0]),
    ]
    for request in found:
        body += _part(request, titled=len(found) > 1)
    body += ["<h2>Where the weights live</h2>", _homes(found[0]), _reading(found[0])]
    title = escape(f"{record.model.name}: one request, second by second")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{escape(STYLE + PAGE_STYLE + SCROLLED)}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )


def _part(found: Request, *, titled: bool) -> Iterable[str]:
    facts = "".join(
        f'<div class="tile"><span>{escape(what)}</span><b>{escape(number)}</b><span>{escape(meaning)}</span></div>'
        for what, number, meaning in tiles(found)
    )
    if titled:
        yield f"<h2>{escape(found.workload.name)}: {escape(shape_of(found.workload))}</h2>"
    yield f'<p class="head">{escape(headline(found))}</p>'
    yield f'<div class="tiles">{facts}</div>'
    yield f"<h2>Device memory through the request</h2>{_wide(timeline(found, style=False))}"
    yield '<p class="foot">Each stage has a least width; what is left is shared out by seconds.</p>'
    yield f"<h2>Where the seconds go</h2>{_wide(seconds_bars(found, style=False))}"
    rows = [(cells(found, stage), found.left(stage) < 0) for stage in found.stages]
    yield f"<h2>Stage by stage</h2>{_wide(_table(HEADINGS, rows))}"


def _wide(inner: str) -> str:
    """What may be wider than the page: moved sideways by hand or by keys."""
    return f'<div class="wide" tabindex="0">{inner}</div>'


def _table(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]]) -> str:
    head = "".join(_cell("th", text, number=place > 0) for place, text in enumerate(headings))
    lines = []
    for texts, is_short in rows:
        line = "".join(_cell("td", text, number=place > 0) for place, text in enumerate(texts))
        lines.append(f'<tr class="no">{line}</tr>' if is_short else f"<tr>{line}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(tag: str, text: str, *, number: bool) -> str:
    return f'<{tag} class="n">{escape(text)}</{tag}>' if number else f"<{tag}>{escape(text)}</{tag}>"


def _homes(found: Request) -> str:
    head = "".join(f"<th>{text}</th>" for text in ("component", "weights", "placed", "why"))
    lines = (
        f'<tr><td class="k">{escape(name)}</td><td class="k">{escape(nbytes)}</td><td>{escape(mode)}</td>'
        f'<td class="w">{escape(why)}</td></tr>'
        for name, nbytes, mode, why in homes(found)
    )
    return _wide(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")


def _placed(found: Request) -> str:
    if found.plan is None:
        return "under the placement that was given"
    return "under its proven fastest placement" if found.plan.status == "Optimal" else "with everything streamed"


def _short(found: Request) -> str:
    if found.plan is None or found.plan.status == "Optimal":
        return ""
    lines = [
        *infeasible_lines(found.record.model.name, found.plan),
        "What is drawn, everything streamed, does not fit.",
    ]
    return '<p class="note">' + "<br/>".join(escape(line) for line in lines) + "</p>"


def _reading(found: Request) -> str:
    record = found.record
    how = "was estimated" if is_estimate(record) else "is extrapolated" if record.extrapolated else "was measured"
    lines = [
        f"Bytes and seconds are those of the cost model for this record and this placement; the record {how}.",
        "“Waits for weights”: compute waits for a copy, or is slowed by one beside it.",
        "“Left”: what is free at the stage's peak beside the reserve, which is larger where it is adaptive.",
        *record.provenance,
    ]
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>How to read this</h2><ul class="foot">{items}</ul>'
