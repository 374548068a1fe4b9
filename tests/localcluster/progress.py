"""What a person at the terminal sees: one line a step on standard error, so that standard output stays for results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"localcluster: {text}", file=sys.stderr, flush=True)


def count(text: str) -> None:
    """Overwrite the current line on a terminal; print nothing elsewhere, where it would be a page of lines."""
    if sys.stderr.isatty():
        print(f"\r\033[Klocalcluster: {text}", end="", file=sys.stderr, flush=True)


def count_done() -> None:
    """End the line that ``count`` was writing."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
