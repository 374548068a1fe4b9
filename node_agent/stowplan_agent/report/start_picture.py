"""The phases of a start as a picture: one row each, one behind the other on the axis of seconds."""

from __future__ import annotations

from typing import Final

from stowplan_agent.report.drawing import WIDTH, duration, element, picture, tipped
from stowplan_agent.report.start import PhaseBar, phase_bars
from stowplan_api.residency_placement import ResidencyPlacementStatus

ROW: Final = 28.0
LABELS: Final = 96.0
NUMBERS: Final = 84.0
LEAST: Final = 2.0
"""Units of a phase that took next to nothing: it is there to be seen."""


def phases_picture(status: ResidencyPlacementStatus, *, width: int = WIDTH, style: bool = True) -> str:
    """The picture as SVG text, ``width`` units wide. With ``style`` it stands alone."""
    bars = phase_bars(status)
    total = max(sum(bar.seconds or 0.0 for bar in bars), 1e-9)
    parts = [part for number, bar in enumerate(bars) for part in _row(bar, ROW * number, total, width)]
    return picture(ROW * len(bars) + 6, "Start-up phases of this boot", parts, style=style, width=width)


def _row(bar: PhaseBar, y: float, total: float, width: int) -> list[str]:
    room = width - LABELS - NUMBERS
    begin = LABELS + room * bar.begin / total
    length = max(room * (bar.seconds or 0.0) / total, LEAST)
    words = "runs" if bar.seconds is None else duration(bar.seconds)
    colour = "c3" if bar.name == "RollBack" else "away" if bar.seconds is None else "c0"
    return [
        element("line", x1=LABELS, x2=width - NUMBERS, y1=y + 12, y2=y + 12, class_="grid"),
        element("text", bar.name, x=LABELS - 10, y=y + 17, text_anchor="end"),
        tipped(f"{bar.name}: {words}", x=begin, y=y + 4, width=length, height=ROW - 11, rx=2, class_=colour),
        element("text", words, x=width - NUMBERS + 12, y=y + 17, class_="strong"),
    ]
