"""The reference, made from models and code whenever the site is built: it is nowhere else, so never out of date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from reference_pages import commands, conditions, fields, metrics, values

PAGES: Final[dict[str, Any]] = {
    "reference/fields.md": fields.page,
    "reference/conditions.md": conditions.page,
    "reference/commands.md": commands.page,
    "reference/metrics.md": metrics.page,
    "reference/values.md": values.page,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of the folder."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files
