"""The chart's values, as the chart has them: each with its default and its comment."""

from __future__ import annotations

from pathlib import Path

VALUES = Path(__file__).parents[3] / "charts" / "stowplan" / "values.yaml"
INTRODUCTION = """# Chart values

`charts/stowplan/values.yaml`, whole. A key that is not here is refused by `values.schema.json`.
"""


def page() -> str:
    """The page as Markdown."""
    return f"{INTRODUCTION}\n```yaml\n{VALUES.read_text(encoding='utf-8')}```\n"
