"""Writes the dashboard's JSON into the chart: ``PYTHONPATH=charts python -m dashboard``, by `make manifests`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dashboard.drawing import text

TARGET: Final = Path(__file__).parents[1] / "stowplan" / "dashboards" / "stowplan.json"

if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
