"""What stays on the card: one bar a size, as wide as all weights of the model, one colour a component.

Full colour stays for good; pale is there while its component runs; grey waits in host memory and is streamed or brought
in. The eye sees how much of the model a size keeps, and beside it what that costs.
"""

from __future__ import annotations

from typing import Final

from stowplan_agent.report.drawing import COLOURS, WIDTH, duration, element, gib, label, picture, slower
from stowplan_agent.report.frontier import Frontier, Point

LEFT, RIGHT = 158.0, WIDTH - 170.0
ROW: Final = 34.0
TOP: Final = 74.0


def bars(found: Frontier, *, style: bool = True) -> str:
    """The picture as SVG text. With ``style`` it stands alone."""
    rows = found.marked
    parts = _legend(found)
    for number, point in enumerate(rows):
        parts += _row(found, point, TOP + ROW * number)
    return picture(bars_height(found), f"{found.record.model.name}: what stays on the card", parts, style=style)


def bars_height(found: Frontier) -> float:
    """Units of height that `bars` takes."""
    return TOP + ROW * len(found.marked) + 8


def _legend(found: Frontier) -> list[str]:
    total = sum(component.total_bytes() for component in found.record.components)
    parts = [element("text", f"all {gib(total)} of weights", x=LEFT, y=18.0, class_="soft")]
    x = LEFT
    for number, component in enumerate(found.record.components):
        words = f"{component.name} {gib(component.total_bytes())}"
        parts.append(element("rect", x=x, y=30.0, width=12, height=12, rx=2, class_=f"c{number % COLOURS}"))
        parts.append(element("text", words, x=x + 17, y=41.0, class_="soft"))
        x += 17 + 6.6 * len(words) + 20
    x = LEFT
    for class_, words in (
        ("c0", "on the card for good"), ("c0 while", "only while it runs"), ("away", "in host memory, streamed"),
    ):  # fmt: skip
        parts.append(element("rect", x=x, y=50.0, width=12, height=12, rx=2, class_=class_))
        parts.append(element("text", words, x=x + 17, y=61.0, class_="soft"))
        x += 17 + 6.6 * len(words) + 20
    return parts


def _row(found: Frontier, point: Point, y: float) -> list[str]:
    name = f"{label(point)}" + (f" ({gib(point.size)})" if point.cards else "")
    parts = [element("text", name, x=LEFT - 10, y=y + 16, text_anchor="end", class_="strong" if point.cards else "")]
    if point.seconds is None:
        parts.append(element("rect", x=LEFT, y=y, width=RIGHT - LEFT, height=ROW - 10, rx=3, class_="never"))
        parts.append(element("text", "does not fit", x=LEFT + 10, y=y + 16, class_="bad strong"))
        return parts
    total = sum(one.total for one in point.held) or 1
    x = LEFT
    for number, one in enumerate(point.held):
        colour = f"c{number % COLOURS}"
        pieces = (
            (one.always, colour),
            (one.running, f"{colour} while"),
            (one.total - one.always - one.running, "away"),
        )
        for nbytes, class_ in pieces:
            width = (RIGHT - LEFT) * nbytes / total
            if width >= 0.05:
                parts.append(element("rect", x=x, y=y, width=max(width - 0.7, 0.3), height=ROW - 10, class_=class_))
            x += width
    best = found.fastest
    words = slower(point.seconds, best.seconds) if best is not None and best.seconds is not None else ""
    parts.append(element("text", duration(point.seconds), x=RIGHT + 14, y=y + 16, class_="strong"))
    parts.append(element("text", words, x=WIDTH - 14.0, y=y + 16, text_anchor="end", class_="soft"))
    return parts
