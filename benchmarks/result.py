"""What every benchmark prints around its figures: a heading, progress, and a document that is whole at any moment."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

BEGAN: Final = time.monotonic()


def heading(benchmark: str) -> dict[str, Any]:
    """What a result begins with: which program, when, and of which commit."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "benchmark": benchmark,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": done.stdout.strip() or "unknown",
    }


def write(path: Path, document: dict[str, Any]) -> None:
    """The document as far as it is known: whole, or as it was."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(json.dumps(document, indent=1) + "\n")
    scratch.replace(path)


def say(text: str) -> None:
    """Progress, for whoever waits; results go to the standard output or to a file."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", file=sys.stderr, flush=True)
