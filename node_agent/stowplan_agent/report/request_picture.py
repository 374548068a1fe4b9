"""Memory by stage, stacked by component; and below each stage how long it is.

A request of four minutes has stages of a tenth of a second. Drawn to scale they would be lines, so every stage gets a
least width and the rest is shared out by seconds; the picture says so. Full colour is there for good, pale for the
stage; grey is outside the allocator, and what lies on top in ink is activations.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from stowplan_agent.report.drawing import COLOURS, WIDTH, duration, element, picture, tipped
from stowplan_agent.report.request import Request
from stowplan_agent.report.request_facts import percent, shape_of, size
from stowplan_agent.report.sizes import GIB
from stowplan_agent.report.stage import Stage

LEFT, MARGIN, TOP, BOTTOM = 70.0, 16.0, 100.0, 384.0
HEIGHT: Final = 440.0
LEAST_WIDTH: Final = 66.0
"""Units of a stage that takes no time."""
NARROW_TOP: Final = 140.0
"""Where the stacks of a picture for a phone end, which has more rows of legend."""
LETTER: Final = 6.7
"""Units of width of a letter, about."""
STEPS: Final = (1 / 1024, 1 / 256, 1 / 64, 1 / 16, 1 / 4, 1, 2, 5, 10, 20, 50, 100, 1e6)
"""GiB between two lines of the axis."""


def timeline(found: Request, *, style: bool = True, width: int = WIDTH) -> str:
    """The picture as SVG text, ``width`` units wide. With ``style`` it stands alone."""
    title = f"{found.record.model.name}, {shape_of(found.workload)}: device memory through one request"
    return picture(HEIGHT, title, _Timeline(found, width).parts(), style=style, width=width)


class _Timeline:
    """One request on its axes."""

    def __init__(self, found: Request, width: int) -> None:
        self.found, self.right = found, width - MARGIN
        self.top = TOP if width >= WIDTH else NARROW_TOP
        self.most = max([found.rank.capacity_bytes, *(stage.peak for stage in found.stages)])

    def parts(self) -> list[str]:
        parts = [*self._legend(), *self._axis(), *self._limits()]
        for stage, (start, end) in zip(self.found.stages, self._places(), strict=True):
            parts += [*self._stack(stage, start, end), *self._names(stage, start, end)]
        return parts

    def _y(self, nbytes: float) -> float:
        return BOTTOM - (BOTTOM - self.top) * nbytes / self.most

    def _places(self) -> list[tuple[float, float]]:
        """Where each stage begins and ends, in units."""
        found = self.found
        count, room = len(found.stages), self.right - LEFT
        least = min(LEAST_WIDTH, room / max(count, 1) * 0.7)
        rest = room - least * count
        edges = [LEFT]
        for stage in found.stages:
            edges.append(edges[-1] + least + rest * (stage.seconds / found.seconds if found.seconds > 0 else 1 / count))
        return list(pairwise(edges))

    def _legend(self) -> list[str]:
        components = enumerate(self.found.record.components)
        entries = [(part.name, f"c{number % COLOURS}") for number, part in components]
        entries += [("for this stage only", "c0 while"), ("activations", "active"), ("context", "away")]
        parts, x, y = [], 14.0 if self.top == NARROW_TOP else LEFT, 12.0
        first = x
        for words, class_ in entries:
            width = 17 + LETTER * len(words) + 18
            if x + width > self.right and x > first:
                x, y = first, y + 20
            parts.append(element("rect", x=x, y=y, width=12, height=12, rx=2, class_=class_))
            parts.append(element("text", words, x=x + 17, y=y + 11, class_="soft"))
            x += width
        return parts

    def _axis(self) -> list[str]:
        top = self.most / GIB
        step = next(step for step in STEPS if top / step <= 6)
        parts = []
        for number in range(int(top / step) + 1):
            y = self._y(number * step * GIB)
            parts.append(element("line", x1=LEFT, x2=self.right, y1=y, y2=y, class_="grid"))
            words = size(number * step * GIB) if number else "0"
            parts.append(element("text", words, x=LEFT - 8, y=y + 4, text_anchor="end", class_="soft"))
        return parts

    def _limits(self) -> list[str]:
        """The capacity, and below it the reserve, which is larger in some stages than in others."""
        most, capacity = self.found.rank.capacity_bytes, self._y(self.found.rank.capacity_bytes)
        words = f"{size(most)} of device memory; the band below is the reserve. Peaks by stage:"
        if self.top == NARROW_TOP:
            words = f"{size(most)}; the band below is the reserve. Peaks:"
        parts = [element("text", words, x=LEFT, y=self.top - 26, class_="soft")]
        for stage, (start, end) in zip(self.found.stages, self._places(), strict=True):
            height, tip = self._y(most - stage.reserve) - capacity, f"reserve: {size(stage.reserve)}"
            parts.append(tipped(tip, x=start, y=capacity, width=end - start, height=height, class_="never"))
        return [*parts, element("line", x1=LEFT, x2=self.right, y1=capacity, y2=capacity, class_="wall")]

    def _stack(self, stage: Stage, start: float, end: float) -> list[str]:
        pieces = [(stage.outside, "away", "context and libraries")]
        for number, share in enumerate(stage.held):
            colour, name = f"c{number % COLOURS}", share.component
            pieces.append((share.always, colour, f"{name}, there for good"))
            pieces.append((share.visiting, f"{colour} while", f"{name}, for this stage only"))
        pieces.append((stage.activations, "active", "activations"))
        parts, below = [], 0
        for nbytes, class_, what in pieces:
            top, bottom = self._y(below + nbytes), self._y(below)
            place = {"x": start + 1, "y": top, "width": end - start - 2, "height": bottom - top}
            if bottom - top >= 0.05:
                parts.append(tipped(f"{stage.name}: {what}, {size(nbytes)}", **place, class_=class_))
            below += nbytes
        return parts

    def _names(self, stage: Stage, start: float, end: float) -> list[str]:
        found, middle, width = self.found, (start + end) / 2, end - start
        peaks = (size(stage.peak), f"{stage.peak / GIB:.2g}" if stage.peak >= GIB else "")
        peak = next((one for one in peaks if LETTER * len(one) < width), "")
        emphasis = "bad strong" if found.left(stage) < 0 else "strong" if stage is found.highest else "soft"
        parts = [_text(peak, middle, self.top - 8, emphasis), _text(str(stage.number), middle, BOTTOM + 16, "strong")]
        name = next((one for one in (stage.name, stage.component or stage.entry) if LETTER * len(one) < width), "")
        if name:
            parts.append(_text(name, middle, BOTTOM + 32, "soft"))
        taken = f"{duration(stage.seconds)}, {percent(stage.seconds, found.seconds)}"
        seconds = next(
            (
                one
                for one in (taken, duration(stage.seconds), f"{stage.seconds:.2g} s" if stage.seconds >= 1e-3 else "")
                if LETTER * len(one) < width
            ),
            "",
        )
        if seconds:
            parts.append(_text(seconds, middle, BOTTOM + 48, "soft"))
        return parts


def _text(words: str, x: float, y: float, class_: str) -> str:
    return element("text", words, x=x, y=y, text_anchor="middle", class_=class_)
