"""What the pictures share: elements as text, the words of sizes, and one style for light and dark.

Plain SVG 1.1 with classes and no script, so that a picture is the same alone, in a page, and in a mail.
"""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from stowplan_agent.report.frontier import Point
from stowplan_agent.report.sizes import GIB

WIDTH: Final = 960
"""Units of a picture's own coordinates; it scales with the page."""
NARROW: Final = 440
"""Units of width for a phone, where the letters of the wide picture would be too small to read."""
LIGHT: Final = """--ink:#1c2430;--soft:#5b6675;--line:#d5dae1;--paper:#ffffff;--card:#f5f7fa;--curve:#1f5fd0;
--bad:#c0392b;--c0:#1f5fd0;--c1:#0f8a6c;--c2:#b7791f;--c3:#8b46c7;--c4:#c2417c;--c5:#557a2b;--c6:#0e7c9b;--c7:#8a5a44"""
DARK: Final = """--ink:#e7ebf1;--soft:#9aa6b5;--line:#364152;--paper:#12171f;--card:#1a212c;--curve:#72a4ff;
--bad:#ff8577;--c0:#72a4ff;--c1:#45cfa8;--c2:#f0b75a;--c3:#c497f5;--c4:#f58ab9;--c5:#a5cf6d;--c6:#5fcbe8;--c7:#d2a48c"""
COLOURS: Final = 8
FASTEST: Final = "fastest"
"""Said of what is slower by less than a hundredth of a percent, or by nothing."""
STYLE: Final = f"""
.stow{{{LIGHT};font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}}
@media (prefers-color-scheme: dark){{.stow{{{DARK}}}}}
.stow text{{fill:var(--ink);font-size:13px}} .stow .soft{{fill:var(--soft);font-size:12px}}
.stow .strong{{font-weight:600}} .stow .bad{{fill:var(--bad)}}
.stow .halo{{stroke:var(--paper);stroke-width:5px;paint-order:stroke;stroke-linejoin:round}}
.stow .paper{{fill:var(--paper)}} .stow .grid{{stroke:var(--line);stroke-width:1}}
.stow .card{{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 4}}
.stow .curve{{stroke:var(--curve);stroke-width:3;fill:none;stroke-linejoin:round}}
.stow .bend{{fill:none;stroke:var(--curve);stroke-width:2.5}}
.stow .under{{fill:var(--curve);opacity:.10}} .stow .dot{{fill:var(--curve);stroke:var(--paper);stroke-width:2}}
.stow .never{{fill:var(--bad);opacity:.10}} .stow .wall{{stroke:var(--bad);stroke-width:2}}
.stow .here{{stroke:var(--ink);stroke-width:2}} .stow .spot{{fill:var(--ink);stroke:var(--paper);stroke-width:2}}
.stow .active{{fill:var(--ink);opacity:.34}} .stow .wait{{fill:var(--bad);opacity:.75}}
.stow .away{{fill:var(--line);opacity:.45}} .stow .while{{opacity:.42}}
""" + "".join(f".stow .c{number}{{fill:var(--c{number})}}" for number in range(COLOURS))


def element(name: str, text: str | None = None, /, **attributes: object) -> str:
    """One element; a trailing underscore in a name is dropped (``class_``), other underscores become hyphens."""
    pairs = (f" {key.rstrip('_').replace('_', '-')}={quoteattr(_number(value))}" for key, value in attributes.items())
    start = f"<{name}{''.join(pairs)}"
    return f"{start}/>" if text is None else f"{start}>{escape(text)}</{name}>"


def tipped(tip: str, /, **attributes: object) -> str:
    """A rectangle with what a pointer that rests on it is told."""
    return element("rect", **attributes).removesuffix("/>") + f">{element('title', tip)}</rect>"


def picture(height: float, title: str, parts: list[str], *, style: bool, width: float = WIDTH) -> str:
    """A whole SVG of ``width`` by ``height``. With ``style`` it stands alone; else its page has it."""
    box = f"0 0 {_number(width)} {_number(height)}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="stow" viewBox="{box}" role="img" '
        f"aria-label={quoteattr(title)}>"
    )
    body = [element("title", title)]
    if style:
        body += [f"<style>{escape(STYLE)}</style>", element("rect", width=width, height=height, class_="paper")]
    return "\n".join([head, *body, *parts, "</svg>"])


def gib(size: float) -> str:
    """Bytes in GiB, three digits: ``23.5 GiB``; in MiB where that would begin with ``0.0``."""
    if size < GIB / 10:
        return f"{size * 1024 / GIB:.3g} MiB"
    return f"{size / GIB:.3g} GiB" if size < 100 * GIB else f"{size / GIB:.4g} GiB"


def duration(seconds: float) -> str:
    """Seconds with four digits, and no more decimals than a stopwatch: ``249.2 s``, ``0.5042 s``; or ``< 1 ms``."""
    if 0 < seconds < 1e-3:
        return "< 1 ms"
    return f"{seconds:.4g} s" if seconds < 1000 else f"{seconds:.0f} s"


def slower(seconds: float, best: float) -> str:
    """How much slower than the best, in percent: ``+0.7 %``; ``fastest`` where nothing is lost."""
    share = 100 * (seconds / best - 1) if best > 0 else 0.0
    if share < 0.005:
        return FASTEST
    return f"+{share:.2g} %" if share < 10 else f"+{share:.0f} %"


def label(point: Point) -> str:
    """A size for people: that of the cards sold with it, else in GiB."""
    return f"{point.cards[0].nominal_gb} GB" if point.cards else gib(point.size)


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
