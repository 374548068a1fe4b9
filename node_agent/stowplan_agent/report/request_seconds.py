"""Where the seconds of a request go: one bar a stage, to scale, by what the card does meanwhile."""

from __future__ import annotations

from typing import Final

from stowplan_agent.report.drawing import COLOURS, WIDTH, duration, element, picture
from stowplan_agent.report.request import Request
from stowplan_agent.report.request_facts import percent
from stowplan_agent.report.stage import Stage

LEFT, RIGHT = 210.0, WIDTH - 150.0
ROW: Final = 30.0
TOP: Final = 36.0
KINDS: Final = (
    ("full colour: layers compute", "c0"),
    ("pale: compute outside the layers", "c0 while"),
    ("waiting for weights", "wait"),
)


def seconds_bars(found: Request, *, style: bool = True) -> str:
    """The picture as SVG text. With ``style`` it stands alone."""
    parts, x = [], LEFT
    for words, kind in KINDS:
        parts.append(element("rect", x=x, y=6.0, width=12, height=12, rx=2, class_=kind))
        parts.append(element("text", words, x=x + 17, y=17.0, class_="soft"))
        x += 17 + 6.6 * len(words) + 20
    colours = {part.name: f"c{number % COLOURS}" for number, part in enumerate(found.record.components)}
    for number, stage in enumerate(found.stages):
        parts += _row(found, stage, colours.get(stage.component or "", "away"), TOP + ROW * number)
    return picture(
        TOP + ROW * len(found.stages) + 6, f"{found.record.model.name}: seconds by stage", parts, style=style
    )


def _row(found: Request, stage: Stage, colour: str, y: float) -> list[str]:
    parts = [element("text", f"{stage.number} {stage.name}", x=LEFT - 10, y=y + 14, text_anchor="end")]
    longest = max(found.longest.seconds, 1e-12)
    x = LEFT
    for seconds, class_ in ((stage.layers, colour), (stage.outside_layers, f"{colour} while"), (stage.waiting, "wait")):
        width = (RIGHT - LEFT) * min(seconds, stage.seconds) / longest
        if width >= 0.05:
            parts.append(element("rect", x=x, y=y, width=width, height=ROW - 10, class_=class_))
        x += width
    parts.append(element("text", duration(stage.seconds), x=RIGHT + 12, y=y + 14, class_="strong"))
    share = percent(stage.seconds, found.seconds)
    return [*parts, element("text", share, x=WIDTH - 10.0, y=y + 14, text_anchor="end", class_="soft")]
