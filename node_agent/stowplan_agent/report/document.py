"""The shell that pages share: one self-contained document, light and dark, on paper and on a phone. No script, no host.

XHTML-shaped HTML, so that any XML parser can read it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from stowplan_agent.report.drawing import DARK, LIGHT, STYLE

PAGE_STYLE: Final = f"""
:root{{color-scheme:light dark;{LIGHT}}} @media (prefers-color-scheme: dark){{:root{{{DARK}}}}}
body{{margin:0;background:var(--paper);color:var(--ink)}}
body{{font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}}
main{{max-width:1000px;margin:0 auto;padding:32px 20px 60px}}
h1{{font-size:24px;line-height:1.3;margin:0}} h2{{font-size:18px;margin:36px 0 8px;scroll-margin-top:12px}}
h3{{font-size:16px;margin:24px 0 6px}} .sub{{color:var(--soft);margin:2px 0 18px}}
.head{{font-size:20px;line-height:1.4;margin:0 0 18px}}
nav{{display:flex;flex-wrap:wrap;gap:6px 8px;margin:0 0 20px}} a{{color:var(--curve)}}
nav a{{font-size:14px;text-decoration:none;padding:5px 11px;border:1px solid var(--line);border-radius:99px}}
nav a:hover{{background:var(--card)}}
.note{{border-left:4px solid var(--bad);background:var(--card);padding:10px 14px;margin:0 0 18px}}
.good{{border-color:var(--c1)}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:12px;margin-bottom:24px}}
.tile{{background:var(--card);border-radius:8px;padding:12px 16px}}
.tile b{{display:block;font-size:26px;line-height:1.3}}
.tile span{{color:var(--soft);font-size:14px}}
svg{{width:100%;height:auto;display:block}} .wide{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%;font-size:14px}} th{{text-align:left;color:var(--soft);font-weight:600}}
th,td{{padding:7px 10px;border-bottom:1px solid var(--line);vertical-align:top}}
td.n,th.n{{text-align:right;width:9%;font-variant-numeric:tabular-nums}}
tr.no td{{color:var(--bad)}} ul.plain{{list-style:none;margin:0;padding:0}} summary{{cursor:pointer;margin-top:20px}}
.foot{{color:var(--soft);font-size:14px}} .slim{{display:none}}
.wide svg{{min-width:680px}} .wide table{{min-width:560px}}
:focus-visible{{outline:3px solid var(--curve);outline-offset:3px;border-radius:4px}}
@media (max-width:640px){{.cards .wide table{{min-width:0}} .cards thead{{display:none}}
.cards tr{{display:block;border-bottom:1px solid var(--line);padding:8px 0}}
.cards td,.cards td.n{{display:block;border:0;padding:2px 4px;width:auto;text-align:left}}
.cards td:empty{{display:none}}
.cards td:first-child{{font-weight:600}}
.cards td:not(:first-child)::before{{content:attr(data-of) ": ";color:var(--soft)}}
.broad{{display:none}} .slim{{display:block}} main{{padding:20px 14px 40px}}
h1{{font-size:21px}} .head{{font-size:18px}} .tiles{{grid-template-columns:1fr 1fr;gap:8px}}
.tile{{padding:10px 12px}} .tile b{{font-size:22px}}}}
@media print{{:root,.stow{{{LIGHT}}} body,table,.foot{{font-size:12px}} main{{max-width:none;padding:0}}
nav,.slim,details:not([open]){{display:none}} .broad{{display:block}} .wide{{overflow:visible}}
main .wide svg,main .wide table{{min-width:0}} .tiles{{grid-template-columns:repeat(4,1fr)}}
svg,tr,.tile,.note{{break-inside:avoid}} h2,h3,h2+p,h3+p,.head{{break-after:avoid}}
*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}}}
@page{{margin:14mm}}
"""


def document(title: str, parts: Iterable[str], style: str = "") -> str:
    """The whole page; empty parts are left out. ``style`` is added to what all pages have."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{escape(STYLE + PAGE_STYLE + style)}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def heading(title: str) -> str:
    """A heading that a link leads to."""
    return f"<h2 id={quoteattr(anchor(title))}>{escape(title)}</h2>"


def anchor(title: str) -> str:
    """A heading's name in a link."""
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower()).strip("-")


def contents(titles: Sequence[str]) -> str:
    """Links to headings, for whoever goes by keys or is in a hurry."""
    links = "".join(f'<a href="#{anchor(title)}">{escape(title)}</a>' for title in titles)
    return f'<nav aria-label="On this page">{links}</nav>'


def tiles(facts: Iterable[tuple[str, str, str]]) -> str:
    """Facts side by side: what it is, the number, what it means."""
    drawn = (
        f'<div class="tile"><span>{escape(what)}</span><b>{escape(number)}</b><span>{escape(meaning)}</span></div>'
        for what, number, meaning in facts
    )
    return f'<div class="tiles">{"".join(drawn)}</div>'


def scrolls(name: str, inside: str) -> str:
    """What may be wider than a phone: it scrolls on its own, by keys as well."""
    return f'<div class="wide" tabindex="0" role="region" aria-label={quoteattr(name)}>{inside}</div>'


def table(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]], numbers: Iterable[int] = ()) -> str:
    """A table of words; a row with True is one that is amiss, columns ``numbers`` are set to the right."""
    right = set(numbers)
    lines = []
    for texts, amiss in rows:
        named = zip(headings, texts, strict=True)
        line = "".join(cell("td", text, number=place in right, of=of) for place, (of, text) in enumerate(named))
        lines.append(f'<tr class="no">{line}</tr>' if amiss else f"<tr>{line}</tr>")
    head = "".join(cell("th", text, number=place in right) for place, text in enumerate(headings))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def cell(tag: str, text: str, *, number: bool, of: str = "") -> str:
    """One cell of a table; numbers are set to the right. ``of`` is its heading, for where there is no head."""
    kind, name = ' class="n"' if number else "", f" data-of={quoteattr(of)}" if of else ""
    return f"<{tag}{kind}{name}>{escape(text)}</{tag}>"


def cards(name: str, inside: str) -> str:
    """A table that becomes a list of cards on a phone, where its columns would be too narrow for words."""
    return f'<div class="cards">{scrolls(name, inside)}</div>'


def broad_and_slim(broad: str, slim: str) -> str:
    """One picture for a screen and paper, and one for a phone."""
    return f'<div class="broad">{broad}</div><div class="slim">{slim}</div>'
