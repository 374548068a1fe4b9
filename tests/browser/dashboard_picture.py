"""docs/pictures/dashboard.png: the panels of the dashboard over a minute of a real agent, drawn here, without Grafana.

    PYTHONPATH=tests:charts python tests/browser/dashboard_picture.py CHECKPOINT

A `stowplan agent` on the emulated card starts, serves, has its plan taken back by the kill switch and serves on, while
a real Prometheus reads it. The queries that Grafana would send are asked as ranges and drawn as it would draw them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import httpx
from pictures import shoot

from dashboard.content import MARKS, ROWS
from dashboard.panels import Panel
from scraping import Prometheus, free_port, prometheus, until

SHOWN: Final = ("Device memory by component", "Planned against used", "Host memory locked against its budget",
                "Where the seconds go", "Seconds a request by shape", "Compute waits for weights", "Start-up phases",
                "Requests by how they ended")  # fmt: skip
VARIABLES: Final = {"$namespace": ".*", "$deployment": ".*", "$pod": ".*", "$__rate_interval": "8s",
                    "offset 1m": "offset 2s", "[1m]": "[2s]"}  # fmt: skip
PALETTE: Final = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#5195ce", "#ba43a9", "#b7dbab")
WIDE, HIGH, LEFT, FOOT = 460, 190, 62, 60
PHASE_SECONDS: Final = 26.0
"""Of serving before the plan is taken back, and after it."""
Series = list[tuple[str, list[tuple[float, float]]]]


def filled(query: str) -> str:
    """A query with the variables chosen."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def ranges(found: Prometheus, query: str, legend: str, start: float, end: float) -> Series:
    """The series of a query from start to end, a reading a second, each with its legend."""
    asked: dict[str, Any] = {"query": filled(query), "start": start, "end": end, "step": 1}
    answer = found.client.get("/api/v1/query_range", params=asked).json()["data"]["result"]
    series = []
    for one in answer:
        name = legend
        for label, value in one["metric"].items():
            name = name.replace("{{" + label + "}}", value)
        series.append((name, [(at, float(value)) for at, value in one["values"] if value != "NaN"]))
    return series


def told(value: float, unit: str) -> str:
    """A number in a panel's unit."""
    if unit in ("bytes", "Bps"):
        size = f"{value / (1 << 20):.3g} MiB" if value < 1 << 30 else f"{value / (1 << 30):.3g} GiB"
        return size + ("/s" if unit == "Bps" else "")
    return f"{100 * value:.2g} %" if unit == "percentunit" else f"{value:.2g}" + (" s" if unit == "s" else "")


def figure(title: str, parts: list[str]) -> str:
    """A panel's frame."""
    return (f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDE} {HIGH}">'
            f'{"".join(parts)}</svg></figure>')  # fmt: skip


def bars(panel: Panel, series: Series) -> str:
    """A gauge: the newest value of each series, longest first."""
    newest = sorted(((points[-1][1], name) for name, points in series if points), reverse=True)
    most, row = max(value for value, _ in newest), (HIGH - 10) / max(len(newest), 8)
    parts = []
    for number, (value, name) in enumerate(newest):
        y, colour, long = 4 + row * number, PALETTE[number % len(PALETTE)], 300 * value / most
        parts.append(f'<text x="84" y="{y + 11:.1f}" text-anchor="end">{escape(name)}</text>'
                     f'<rect x="92" y="{y:.1f}" width="{long:.1f}" height="{row - 5:.1f}" fill="{colour}"/>'
                     f'<text x="{98 + long:.1f}" y="{y + 11:.1f}">'
                     f"{told(value, panel.unit)}</text>")  # fmt: skip
    return figure(panel.title, parts)


def drawn(panel: Panel, found: Prometheus, start: float, end: float, marks: list[tuple[float, str]]) -> str:
    """One panel: stacked areas or lines, its limits dashed, the marks through it, and a legend."""
    layers = [(query.limit, series) for query in panel.queries
              for series in ranges(found, query.expr, query.legend, start, end) if series[1]]  # fmt: skip
    if panel.look == "gauge":
        return bars(panel, [series for _, series in layers])
    stacked = panel.look in ("stack", "bars")
    heights: dict[float, float] = {}
    top = 1e-9
    for limit, (_, points) in layers:
        for at, value in points:
            heights[at] = heights.get(at, 0.0) + value if stacked and not limit else heights.get(at, 0.0)
            top = max(top, heights[at] if stacked and not limit else value)

    def x(at: float) -> float:
        return LEFT + (WIDE - LEFT - 8) * (at - start) / (end - start)

    def y(value: float) -> float:
        return HIGH - FOOT - (HIGH - FOOT - 12) * value / (top * 1.06)

    parts, below = [], dict[float, float]()
    for step in range(4):
        value = top * step / 3
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDE - 8}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#2c3235"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{told(value, panel.unit)}</text>'
        )
    legend, across, row = [], 8.0, HIGH - 38
    for number, (limit, (name, points)) in enumerate(layers):
        colour = PALETTE[number % len(PALETTE)]
        line = [(x(at), y(value + (below.get(at, 0.0) if stacked and not limit else 0.0))) for at, value in points]
        if stacked and not limit:
            floor = [(x(at), y(below.get(at, 0.0))) for at, _ in reversed(points)]
            shape = " ".join(f"{a:.1f},{b:.1f}" for a, b in (*line, *floor))
            parts.append(f'<polygon points="{shape}" fill="{colour}" opacity=".45"/>')
            below |= {at: below.get(at, 0.0) + value for at, value in points}
        dash = ' stroke-dasharray="6 4" stroke-width="2"' if limit else ' stroke-width="1.5"'
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"{dash}/>')
        if across + 6.2 * len(name) + 24 > WIDE:
            across, row = 8.0, row + 14
        legend.append(
            f'<rect x="{across:.0f}" y="{row - 5}" width="12" height="3" fill="{colour}"/>'
            f'<text x="{across + 16:.0f}" y="{row}">{escape(name)}</text>'
        )
        across += 6.2 * len(name) + 26
    for at, colour in marks:
        parts.append(
            f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="10" y2="{HIGH - FOOT}" stroke="{colour}" '
            'stroke-dasharray="3 3"/>'
        )
    return figure(panel.title, [*parts, *legend])


def page(found: Prometheus, start: float, end: float) -> str:
    """All shown panels on one page in Grafana's dark."""
    marks = [(points[0][0], mark.colour) for mark in MARKS for _, points in ranges(found, mark.expr, "", start, end)]
    panels = {panel.title: panel for row in ROWS for panel in row.panels}
    figures = "".join(drawn(panels[title], found, start, end, marks) for title in SHOWN)
    return (
        "<style>body{margin:0;padding:8px;background:#111217;font:11px system-ui}main{display:grid;gap:8px;"
        "grid-template-columns:1fr 1fr}figure{margin:0;background:#181b1f;border:1px solid #25282d;padding:8px}"
        "figcaption{color:#d8d9da;font-weight:600;font-size:13px}text{fill:#9fa7b3;font-size:10.5px}</style>"
        f"<main>{figures}</main>"
    )


def serve(client: httpx.Client, seconds: float) -> None:
    """Requests one after another for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert client.post("/v1/images/generations", json={"prompt": "a red kite over the dunes"}).status_code == 200


def main(checkpoint: str) -> None:
    """Start, serve, take back, serve, draw."""
    with tempfile.TemporaryDirectory() as name:
        folder, address = Path(name), f"127.0.0.1:{free_port()}"
        command = [str(Path(sys.executable).with_name("stowplan")), "agent", checkpoint, "--shape", "square=32x32@2"]
        command += ["--accelerator", "emulated", "--device-memory", "24Mi", "--device-reserve", "1Mi"]
        command += ["--host-memory", "3Gi", "--dtype", "float32"]
        log = folder / "log"
        process = subprocess.Popen([*command, "--port", address.rpartition(":")[2]], stdout=log.open("w"),
                                   stderr=subprocess.STDOUT, env=os.environ)  # fmt: skip
        whose: Mapping[str, str] = {"namespace": "studio", "diffusion_deployment": "kites", "pod": "kites-a"}
        try:
            with (
                httpx.Client(base_url=f"http://{address}", timeout=120) as client,
                prometheus(folder, {address: whose}) as found,
            ):
                until(lambda: client.get("/health").status_code == 200, process, log)
                start = time.time() - 4
                serve(client, PHASE_SECONDS)
                process.send_signal(signal.SIGUSR1)
                until(lambda: client.get("/health").json()["phase"] == "RolledBack", process, log)
                until(lambda: client.get("/health").status_code == 200, process, log)
                serve(client, PHASE_SECONDS)
                threading.Event().wait(2)
                shown = folder / "dashboard.html"
                shown.write_text(page(found, start, time.time()), encoding="utf-8")
                shoot(shown, "dashboard.png", 1000, 950, "dark")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


if __name__ == "__main__":
    main(sys.argv[1])
