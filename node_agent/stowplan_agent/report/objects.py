"""What is there in an object of the API server, whatever is there. Pure.

Objects may be of another version, or half written, so each field is asked for, and one of another kind is as good as
none. Nor is text taken as it comes: whoever may write a status may not steer the terminal of who reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Json = Mapping[str, Any]
_LARGEST: Final = 1 << 63
"""Kubernetes has no larger integers, and arithmetic with them must not fail."""


def condition(raw: Json, type_: str) -> Json:
    """A condition of an object; empty where there is none."""
    return next((one for one in each(raw, "conditions") if one.get("type") == type_), {})


def key(raw: Json) -> tuple[str, str]:
    """Namespace and name."""
    return at(raw, "metadata", "namespace", default=""), at(raw, "metadata", "name", default="?")


def at(raw: Any, *path: str, default: Any) -> Any:
    """What is there, where it is of the kind that ``default`` is; else that. Text is fit to be printed."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    kind = Mapping if isinstance(default, Mapping) else type(default)
    if not isinstance(raw, kind) or isinstance(raw, bool) or (isinstance(raw, int) and abs(raw) > _LARGEST):
        return default
    return printable(raw) if isinstance(raw, str) else raw


def printable(text: str) -> str:
    """The text with a space for whatever moves a cursor, rings, colours or turns the direction of writing."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def each(raw: Json, name: str) -> list[Json]:
    """The objects in a list of the status."""
    return [one for one in at(raw, "status", name, default=[]) if isinstance(one, Mapping)]


def length(found: Any) -> int:
    """Elements of a list that may be left out; -1 of anything else."""
    return 0 if found is None else len(found) if isinstance(found, list) else -1
