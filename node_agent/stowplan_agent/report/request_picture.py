"""Memory by stage, stacked by component; and below each stage how long it is.

A request of four minutes has stages of a tenth of a second. Drawn to scale they would be lines, so every stage gets a
least width and the rest is shared out by seconds; the picture says so. Full colour is there for good, pale for the
stage; grey is outside the allocator, and what lies on top in ink is activations.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from stowplan_agent.report.drawing import COLOURS, WIDTH, duration, element, picture
from stowplan_agent.report.request import Request
from stowplan_agent.report.request_facts import percent, shape_of, size
from stowplan_agent.report.sizes import GIB
from stowplan_agent.report.stage import Stage

LEFT, RIGHT, TOP, BOTTOM = 70.0, WIDTH - 16.0, 100.0, 384.0
HEIGHT: Final = 440.0
LEAST_WIDTH: Final = 66.0
"""Units of a stage that takes no time."""
LETTER: Final = 6.7
"""Units of width of a letter, about."""


def timeline(found: Request, *, style: bool = True) -> str:
    """The picture as SVG text. With ``style`` it stands alone."""
    most = max([found.rank.capacity_bytes, *(stage.peak for stage in found.stages)])
    parts = [*_legend(found), *_axis(most), *_limits(found, most)]
    for stage, (start, end) in zip(found.stages, _places(found), strict=True):
        parts += _stack(found, stage, start, end, most)
    title = f"{found.record.model.name}, {shape_of(found.workload)}: device memory through one request"
    return picture(HEIGHT, title, parts, style=style)


def _places(found: Request) -> list[tuple[float, float]]:
    """Where each stage begins and ends, in units."""
    count, room = len(found.stages), RIGHT - LEFT
    least = min(LEAST_WIDTH, room / max(count, 1) * 0.7)
    rest = room - least * count
    edges = [LEFT]
    for stage in found.stages:
        edges.append(edges[-1] + least + rest * (stage.seconds / found.seconds if found.seconds > 0 else 1 / count))
    return list(pairwise(edges))


def _legend(found: Request) -> list[str]:
    colours = [(part.name, f"c{number % COLOURS}") for number, part in enumerate(found.record.components)]
    entries = [*colours, ("for this stage only", "c0 while"), ("activations", "active"), ("context", "away")]
    parts, x, y = [], LEFT, 12.0
    for words, class_ in entries:
        width = 17 + LETTER * len(words) + 18
        if x + width > RIGHT and x > LEFT:
            x, y = LEFT, y + 20
        parts.append(element("rect", x=x, y=y, width=12, height=12, rx=2, class_=class_))
        parts.append(element("text", words, x=x + 17, y=y + 11, class_="soft"))
        x += width
    return parts


def _axis(most: float) -> list[str]:
    top = most / GIB
    step = next(
        step for step in (1 / 1024, 1 / 256, 1 / 64, 1 / 16, 1 / 4, 1, 2, 5, 10, 20, 50, 100, 1e6) if top / step <= 6
    )
    parts = []
    for number in range(int(top / step) + 1):
        y = _y(number * step * GIB, most)
        parts.append(element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid"))
        words = size(number * step * GIB) if number else "0"
        parts.append(element("text", words, x=LEFT - 8, y=y + 4, text_anchor="end", class_="soft"))
    return parts


def _limits(found: Request, most: float) -> list[str]:
    """The capacity, and below it the reserve, which is larger in some stages than in others."""
    capacity = _y(found.rank.capacity_bytes, most)
    words = f"{size(found.rank.capacity_bytes)} of device memory; the band below is the reserve. Peaks by stage:"
    parts = [element("text", words, x=LEFT, y=TOP - 26, class_="soft")]
    for stage, (start, end) in zip(found.stages, _places(found), strict=True):
        height = _y(found.rank.capacity_bytes - stage.reserve, most) - capacity
        parts.append(element("rect", x=start, y=capacity, width=end - start, height=height, class_="never"))
    return [*parts, element("line", x1=LEFT, x2=RIGHT, y1=capacity, y2=capacity, class_="wall")]


def _stack(found: Request, stage: Stage, start: float, end: float, most: float) -> list[str]:
    pieces = [(stage.outside, "away")]
    for number, share in enumerate(stage.held):
        colour = f"c{number % COLOURS}"
        pieces += [(share.always, colour), (share.visiting, f"{colour} while")]
    pieces.append((stage.activations, "active"))
    parts, below = [], 0
    for nbytes, class_ in pieces:
        top, bottom = _y(below + nbytes, most), _y(below, most)
        if bottom - top >= 0.05:
            parts.append(element("rect", x=start + 1, y=top, width=end - start - 2, height=bottom - top, class_=class_))
        below += nbytes
    middle, width = (start + end) / 2, end - start
    peak = size(stage.peak) if width >= LETTER * 8 else f"{stage.peak / GIB:.2g}"
    emphasis = "bad strong" if found.left(stage) < 0 else "strong" if stage is found.highest else "soft"
    parts.append(_text(peak, middle, TOP - 8, emphasis))
    parts.append(_text(str(stage.number), middle, BOTTOM + 16, "strong"))
    name = stage.name if LETTER * len(stage.name) < width else stage.component or stage.entry
    if LETTER * len(name) < width:
        parts.append(_text(name, middle, BOTTOM + 32, "soft"))
    seconds = f"{duration(stage.seconds)}, {percent(stage.seconds, found.seconds)}"
    if LETTER * len(seconds) >= width:
        seconds = f"{stage.seconds:.2g} s"
    parts.append(_text(seconds, middle, BOTTOM + 48, "soft"))
    return parts


def _text(words: str, x: float, y: float, class_: str) -> str:
    return element("text", words, x=x, y=y, text_anchor="middle", class_=class_)


def _y(nbytes: float, most: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * nbytes / most
