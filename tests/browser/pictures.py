"""The pictures in docs/pictures that are of running programs, made anew by hand after a change of what they show.

    PYTHONPATH=tests:tests/unit/cli python tests/browser/pictures.py RECORD.json RESIDENCY.json

RECORD is drawn as a laptop shows it, RESIDENCY (what a pod answers at /residency) as a phone does in the dark.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from api_lists import DEPLOYMENTS, PLACEMENTS, PODS
from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console

from localcluster import packages
from stowplan_agent.report.namespace import deployments_of
from stowplan_agent.report.namespace_view import namespace_view

TARGET = Path(__file__).parents[2] / "docs" / "pictures"
COLOURS = 160
"""Of a palette: enough for flat areas and letters, and a third of the bytes."""


def shoot(page: Path, name: str, width: int, height: int, scheme: Literal["light", "dark"]) -> None:
    """The top of a page as a PNG of few bytes."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=packages.program("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        shown = context.new_page()
        shown.goto(page.as_uri())
        taken = shown.screenshot()
        browser.close()
    small = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(TARGET / name, optimize=True)


def terminal() -> None:
    """The view of a namespace, as rich draws a terminal, without the fonts that it would fetch."""
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    console.print(namespace_view(deployments_of(DEPLOYMENTS, PLACEMENTS, PODS, now), "namespace studio"))
    drawn = console.export_svg(title="stowplan status")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    (TARGET / "status.svg").write_text(drawn.replace("Fira Code", "ui-monospace, Menlo, Consolas"), encoding="utf-8")


def main(record: str, residency: str) -> None:
    """Write all of them."""
    with tempfile.TemporaryDirectory() as folder:
        for source, name in ((record, "record"), (residency, "residency")):
            page = Path(folder) / f"{name}.html"
            subprocess.run(
                [str(Path(sys.executable).with_name("stowplan")), "report", source, "-o", str(page)], check=True
            )
        shoot(Path(folder) / "record.html", "report-light.png", 1000, 1130, "light")
        shoot(Path(folder) / "residency.html", "report-narrow-dark.png", 390, 1180, "dark")
        shoot(Path(folder) / "residency.html", "report-dark.png", 1000, 900, "dark")
    terminal()


if __name__ == "__main__":
    main(*sys.argv[1:])
