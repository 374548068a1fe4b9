"""What a file seems to be, before it is read as anything: several commands take files of more than one kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def looked_into(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none to be read, which reading the file then explains.

    A pipe can be read only once, so it is not asked.
    """
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
