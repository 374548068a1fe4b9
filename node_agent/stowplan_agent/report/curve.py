"""The curve: seconds of a request against device memory, in steps, with the sizes that cards are sold in.

The axis of seconds starts at zero wherever that still shows the steps. Where it cannot (a few percent in all), it does
not, and the picture says so in words beside the axis.
"""

from __future__ import annotations

import math
from typing import Final

from stowplan_agent.report.drawing import WIDTH, duration, element, gib, label, picture, slower
from stowplan_agent.report.frontier import Frontier, Point
from stowplan_agent.report.knee import knee
from stowplan_agent.report.provenance import estimate_note
from stowplan_agent.report.sizes import GIB

HEIGHT: Final = 430
LEFT, TOP, BOTTOM = 76.0, 84.0, 372.0
MARGIN: Final = 24.0
FLAT: Final = 1.25
"""Below this ratio of slowest to fastest an axis from zero would show a straight line."""
LABEL_ROOM: Final = 50.0
"""Units that a card's label needs for itself."""
WIDE_WALL: Final = 210.0
"""Units from which on the words about what does not fit have room left of where it begins to."""


def curve(found: Frontier, *, style: bool = True, width: int = WIDTH, here: int | None = None) -> str:
    """The picture as SVG text, ``width`` units wide. With ``style`` it stands alone; ``here`` marks a size in bytes."""
    title = f"{found.record.model.name}: seconds a request by device memory"
    drawn = _Curve(found, width)
    parts = drawn.parts() if here is None else [*drawn.parts(), *drawn.mark(here)]
    return picture(HEIGHT, title, parts, style=style, width=width)


class _Curve:
    """One frontier on its axes."""

    def __init__(self, found: Frontier, width: int) -> None:
        self.found, self.right, self.narrow = found, width - MARGIN, width < WIDTH
        self.least, self.most = found.points[0].size, found.points[-1].size
        seconds = [point.seconds for point in found.feasible if point.seconds is not None]
        self.best, self.worst = (min(seconds), max(seconds)) if seconds else (0.0, 1.0)
        self.from_zero = self.worst > FLAT * self.best
        span = max(self.worst - self.best, self.worst * 1e-3)
        self.low = 0.0 if self.from_zero else max(self.best - span * 0.25, 0.0)
        self.high = self.worst * 1.05 if self.from_zero else self.worst + span * 0.12

    def x(self, size: float) -> float:
        return LEFT + (self.right - LEFT) * (size - self.least) / max(self.most - self.least, 1)

    def y(self, seconds: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (seconds - self.low) / max(self.high - self.low, 1e-12)

    def parts(self) -> list[str]:
        return [*self._axes(), *self._steps(), *self._cards(), *self._wall(), *self._bend(), *self._words()]

    def _axes(self) -> list[str]:
        parts = []
        for seconds in _ticks(self.low, self.high, 5):
            y = self.y(seconds)
            parts.append(element("line", x1=LEFT, x2=self.right, y1=y, y2=y, class_="grid"))
            parts.append(element("text", f"{seconds:g} s", x=LEFT - 8, y=y + 4, text_anchor="end", class_="soft"))
        for size in _ticks(self.least / GIB, self.most / GIB, 4 if self.narrow else 9):
            x = self.x(size * GIB)
            parts.append(element("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 5, class_="grid"))
            parts.append(element("text", f"{size:g}", x=x, y=BOTTOM + 19, text_anchor="middle", class_="soft"))
        middle = (LEFT + self.right) / 2
        words = "device memory that one process may use, GiB"
        return [*parts, element("text", words, x=middle, y=BOTTOM + 40, text_anchor="middle", class_="soft")]

    def _wall(self) -> list[str]:
        """What lies below the smallest size that fits."""
        fits = self.found.feasible
        edge = self.x(fits[0].size) if fits else self.right
        if edge <= LEFT:
            return []
        parts = [element("rect", x=LEFT, y=TOP, width=edge - LEFT, height=BOTTOM - TOP, class_="never")]
        parts.append(element("line", x1=edge, x2=edge, y1=TOP, y2=BOTTOM, class_="wall"))
        words = f"does not fit below {gib(fits[0].size)}" if fits else "does not fit on any of these sizes"
        if edge - LEFT > WIDE_WALL:
            middle = {"x": (LEFT + edge) / 2, "y": (TOP + BOTTOM) / 2, "text_anchor": "middle"}
            return [*parts, element("text", words, **middle, class_="bad strong")]
        return [*parts, element("text", f"← {words}", x=edge + 8, y=BOTTOM - 12, class_="bad strong halo")]

    def _steps(self) -> list[str]:
        points = [(self.x(point.size), self.y(point.seconds)) for point in self.found.feasible if point.seconds]
        if not points:
            return []
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        path += "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
        under = f"{path}V{BOTTOM:.1f}H{points[0][0]:.1f}Z"
        return [element("path", d=under, class_="under"), element("path", d=path, class_="curve")]

    def _cards(self) -> list[str]:
        """A line and a dot for each size that cards are sold in; labels take a second row where they would touch."""
        parts: list[str] = []
        ends = [-math.inf, -math.inf, -math.inf]
        for point in self.found.points:
            if not point.cards:
                continue
            x = self.x(point.size)
            row = next((number for number, end in enumerate(ends) if x - end >= LABEL_ROOM), len(ends) - 1)
            ends[row] = x
            top = TOP - 10 - 17 * row
            parts.append(element("line", x1=x, x2=x, y1=top + 5, y2=BOTTOM, class_="card"))
            parts.append(element("text", label(point), x=x, y=top, text_anchor="middle", class_="strong"))
            if point.seconds is not None:
                parts.append(element("circle", cx=x, cy=self.y(point.seconds), r=5.5, class_="dot"))
        return parts

    def _bend(self) -> list[str]:
        """A ring where more memory begins to gain little."""
        bend = knee(self.found)
        if bend is None:
            return []
        x, y = self.x(bend.point.size), self.y(bend.point.seconds or 0.0)
        words = f"knee at {gib(bend.point.size)}: beyond it a GiB saves {bend.after:.2g} s"
        if self.narrow:
            words = words.split(":")[0]
        parts = [element("path", d=f"M{x - 9:.1f} {y:.1f}a9 9 0 1 0 18 0a9 9 0 1 0 -18 0", class_="bend")]
        return [*parts, element("text", words, x=x + 14, y=y - 12, class_="strong halo")]

    def mark(self, size: int) -> list[str]:
        """The card that the record is of: a line through the picture, and a spot where its requests are."""
        if not self.least <= size <= self.most:
            return []
        x = self.x(size)
        parts = [element("line", x1=x, x2=x, y1=TOP, y2=BOTTOM, class_="here")]
        seconds = [point.seconds for point in self.found.points if point.size <= size][-1]
        if seconds is not None:
            parts.append(element("circle", cx=x, cy=self.y(seconds), r=7.0, class_="spot"))
        # The curve falls, so there is room at the top, but for where it begins.
        left = x > (LEFT + self.right) / 2
        anchor = {"x": x - 10, "text_anchor": "end"} if left else {"x": x + 10, "text_anchor": "start"}
        return [*parts, element("text", f"this card, {gib(size)}", y=TOP + 34, class_="strong halo", **anchor)]

    def _words(self) -> list[str]:
        scale = "seconds of one request"
        if not self.from_zero and self.found.feasible:
            whole = slower(self.worst, self.best).removeprefix("+")
            scale += f"; the axis does not start at 0: from the slowest to the fastest it is only {whole}"
        if self.narrow:
            scale = scale.split(":")[0]
        parts = [element("text", scale, x=LEFT if not self.narrow else 14.0, y=20.0, class_="soft")]
        note = estimate_note(self.found.record)
        if note is not None:
            # A narrow picture needs the room above for a third row of labels.
            place = {"x": 14.0, "y": HEIGHT - 3.0} if self.narrow else {"x": LEFT, "y": 38.0}
            parts.append(element("text", note.split(";")[0], **place, class_="bad strong"))
        return parts + self._ends()

    def _ends(self) -> list[str]:
        fits = self.found.feasible
        if not fits:
            return []
        first, last = fits[0], self.found.fastest or fits[-1]
        parts = [self._end(first, -10.0, "start")]
        return parts if last is first else [*parts, self._end(last, 24.0, "middle")]

    def _end(self, point: Point, drop: float, anchor: str) -> str:
        seconds = point.seconds or 0.0
        x = min(self.x(point.size) + (10 if anchor == "start" else 0), self.right - 70)
        words = f"{duration(seconds)} at {gib(point.size)}"
        y = min(self.y(seconds) + drop, BOTTOM - 28)  # what does not fit is said below
        return element("text", words, x=x, y=y, text_anchor=anchor, class_="strong halo")


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two limits, roughly ``about`` of them."""
    span = max(high - low, 1e-12)
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= about)
    first = math.ceil(low / step)
    return [round(number * step, 12) for number in range(first, math.floor(high / step) + 1)]
