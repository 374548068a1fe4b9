"""Where the seconds of a request go: one bar a stage, to scale, by what the card does meanwhile."""

from __future__ import annotations

from typing import Final

from stowplan_agent.report.drawing import COLOURS, WIDTH, duration, element, picture, tipped
from stowplan_agent.report.request import Request
from stowplan_agent.report.request_facts import percent
from stowplan_agent.report.stage import Stage

LEFT, RIGHT = 210.0, 150.0
"""Units of room for names and for numbers."""
SLIM_LEFT, SLIM_RIGHT = 118.0, 92.0
ROW: Final = 30.0
TOP: Final = 36.0
KINDS: Final = (
    ("full colour: layers compute", "c0"),
    ("pale: compute outside the layers", "c0 while"),
    ("waiting for weights", "wait"),
)

WORDS: Final = ("layers compute", "compute outside the layers", "waiting for weights")


def seconds_bars(found: Request, *, style: bool = True, width: int = WIDTH) -> str:
    """The picture as SVG text, ``width`` units wide. With ``style`` it stands alone."""
    slim = width < WIDTH
    x, y, rows = (14.0 if slim else LEFT), 6.0, 1
    parts = []
    for words, kind in KINDS:
        room = 17 + 6.6 * len(words) + 20
        if x + room > width and rows:
            x, y, rows = 14.0, y + 20, rows + 1
        parts.append(element("rect", x=x, y=y, width=12, height=12, rx=2, class_=kind))
        parts.append(element("text", words, x=x + 17, y=y + 11, class_="soft"))
        x += room
    colours = {part.name: f"c{number % COLOURS}" for number, part in enumerate(found.record.components)}
    top = TOP + 20 * (rows - 1)
    for number, stage in enumerate(found.stages):
        parts += _row(found, stage, colours.get(stage.component or "", "away"), top + ROW * number, width)
    title = f"{found.record.model.name}: seconds by stage"
    return picture(top + ROW * len(found.stages) + 6, title, parts, style=style, width=width)


def _row(found: Request, stage: Stage, colour: str, y: float, width: int) -> list[str]:
    slim = width < WIDTH
    left, right = (SLIM_LEFT, width - SLIM_RIGHT) if slim else (LEFT, width - RIGHT)
    name = f"{stage.number} {(stage.component or stage.entry)[:15] if slim else stage.name}"
    parts = [element("text", name, x=left - 10, y=y + 14, text_anchor="end")]
    longest = max(found.longest.seconds, 1e-12)
    kinds = zip(
        (stage.layers, stage.outside_layers, stage.waiting), (colour, f"{colour} while", "wait"), WORDS, strict=True
    )
    x = left
    for seconds, class_, words in kinds:
        length = (right - left) * min(seconds, stage.seconds) / longest
        if length >= 0.05:
            place = {"x": x, "y": y, "width": length, "height": ROW - 10}
            parts.append(tipped(f"{stage.name}: {words}, {duration(seconds)}", **place, class_=class_))
        x += length
    parts.append(element("text", duration(stage.seconds), x=right + 12, y=y + 14, class_="strong"))
    if slim:
        return parts
    share = percent(stage.seconds, found.seconds)
    return [*parts, element("text", share, x=width - 10.0, y=y + 14, text_anchor="end", class_="soft")]
