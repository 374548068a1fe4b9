"""The frontier as one page for whoever decides which card to buy: no script, no host, light and dark.

From top to bottom: the sentence, three numbers, the curve, what stays on the card, a table, and how to read it. What
is estimated says so first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from stowplan_agent.report.bars import bars
from stowplan_agent.report.curve import NARROW, curve
from stowplan_agent.report.drawing import DARK, LIGHT, STYLE, label
from stowplan_agent.report.facts import cells, headline, kept, same_machine, tiles, why_not_less
from stowplan_agent.report.frontier import Frontier, Point
from stowplan_agent.report.provenance import estimate_note
from stowplan_api.record import Workload

PAGE_STYLE: Final = f"""
:root{{color-scheme:light dark;{LIGHT}}} @media (prefers-color-scheme: dark){{:root{{{DARK}}}}}
body{{margin:0;background:var(--paper);color:var(--ink)}}
body{{font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}}
main{{max-width:1000px;margin:0 auto;padding:32px 20px 60px}}
h1{{font-size:24px;margin:0}} h2{{font-size:18px;margin:36px 0 8px}} .sub{{color:var(--soft);margin:2px 0 18px}}
.head{{font-size:20px;line-height:1.4;margin:0 0 18px}}
.note{{border-left:4px solid var(--bad);background:var(--card);padding:10px 14px;margin:0 0 18px}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:12px;margin-bottom:24px}}
.tile{{background:var(--card);border-radius:8px;padding:12px 16px}}
.tile b{{display:block;font-size:26px;line-height:1.3}}
.tile span{{color:var(--soft);font-size:14px}}
svg{{width:100%;height:auto;display:block}} .wide{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%;font-size:14px}} th{{text-align:left;color:var(--soft);font-weight:600}}
th,td{{padding:7px 10px;border-bottom:1px solid var(--line);vertical-align:top}}
td.n,th.n{{text-align:right;width:9%}}
tr.no td{{color:var(--bad)}} ul.plain{{list-style:none;margin:0;padding:0}} summary{{cursor:pointer;margin-top:20px}}
.foot{{color:var(--soft);font-size:14px}} .slim{{display:none}}
.wide svg{{min-width:680px}} .wide table{{min-width:560px}}
:focus-visible{{outline:3px solid var(--curve);outline-offset:3px;border-radius:4px}}
@media (max-width:640px){{.broad{{display:none}} .slim{{display:block}} main{{padding:20px 14px 40px}}
.head{{font-size:18px}} .tiles{{grid-template-columns:1fr 1fr;gap:8px}}
.tile{{padding:10px 12px}} .tile b{{font-size:22px}}}}
@media print{{:root,.stow{{{LIGHT}}} body{{font-size:12px}} main{{max-width:none;padding:0}}
.slim,details:not([open]){{display:none}} .broad{{display:block}} .wide{{overflow:visible}} .wide svg{{min-width:0}}
svg,tr,.tile{{break-inside:avoid}} h2{{break-after:avoid}}
*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}}}
"""
HEADINGS: Final = ("size", "usable", "seconds a request", "against the fastest", "lost against the next size")


def page(found: Frontier) -> str:
    """The whole page: XHTML-shaped HTML, so that any XML parser can read it back."""
    model = found.record.model
    note = estimate_note(found.record)
    shapes = "; ".join(_shape(workload) for workload in found.record.workloads)
    facts = "".join(
        f'<div class="tile"><span>{escape(what)}</span><b>{escape(number)}</b><span>{escape(meaning)}</span></div>'
        for what, number, meaning in tiles(found)
    )
    reason = why_not_less(found)
    body = [
        f"<h1>{escape(model.name)}: which card is worth its price?</h1>",
        f'<p class="sub">{escape(shapes)}; {escape(found.record.ranks[0].device)}; {len(found.points)} sizes, each '
        "with its proven fastest placement</p>",
        f'<p class="note">{escape(note)}</p>' if note else "",
        f'<p class="head">{escape(headline(found))}</p>',
        f'<p class="sub">{escape(_whose(found))}</p>',
        f'<div class="tiles">{facts}</div>',
        "<h2>Seconds of a request by device memory</h2>",
        f'<div class="broad">{curve(found, style=False)}</div>',
        f'<div class="slim">{curve(found, style=False, width=NARROW)}</div>',
        f'<p class="foot">{escape(same_machine(found))}</p>',
        f'<p class="foot">{escape(reason)}</p>' if reason else "",
        "<h2>What stays on the card</h2>",
        _scrolls("What stays on the card", bars(found, style=False)),
        "<h2>Size by size</h2>",
        _scrolls("Size by size", _table(found, found.marked, details=True)),
        f"<details><summary>All {len(found.points)} sizes</summary>"
        f"{_scrolls('All sizes', _table(found, found.points, details=False))}</details>",
        _reading(found),
    ]
    title = escape(f"{model.name}: seconds by device memory")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{escape(STYLE + PAGE_STYLE)}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )


def _scrolls(name: str, inside: str) -> str:
    """What may be wider than a phone: it scrolls on its own, by keys as well."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">{inside}</div>'


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
    head = "".join(_cell("th", text, number=0 < place < len(HEADINGS)) for place, text in enumerate(headings))
    lines = []
    for point in rows:
        columns = [_cell("td", text, number=place > 0) for place, text in enumerate(cells(found, point, rows))]
        if details:
            names = ", ".join(card.name for card in point.cards)
            columns[0] = f'<td><b>{escape(label(point))}</b><br/><span class="foot">{escape(names)}</span></td>'
            columns.append(f"<td>{_list(kept(point))}</td>")
        start = '<tr class="no">' if point.seconds is None else "<tr>"
        lines.append(f"{start}{''.join(columns)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(tag: str, text: str, *, number: bool) -> str:
    start = f'<{tag} class="n">' if number else f"<{tag}>"
    return f"{start}{escape(text)}</{tag}>"


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
