"""Every way to spoil one field of a document: what a hostile or hurried author may write there."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Path = tuple[str | int, ...]
Change = Callable[[Any, Any], object]

VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    "elsewhere",
    "a\nb",
    "\ud800",
    "1",
    [],
    {},
    [None],
    -1,
    -0.5,
    0,
    1,
    2**63,
    10**30,
    1e-320,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
)
"""What may stand in the place of any value."""


def paths(data: Any, at: Path = ()) -> Iterator[Path]:
    """The path of everything in plain JSON data, containers included; of equal list entries, the first and the last."""
    if at:
        yield at
    if isinstance(data, dict):
        for key, value in data.items():
            yield from paths(value, (*at, key))
    elif isinstance(data, list):
        for index in sorted({0, len(data) - 1} if data else ()):
            yield from paths(data[index], (*at, index))


def mutations(data: Any) -> Iterator[tuple[Path, str, str]]:
    """Path, what was done there, and the spoilt document as JSON text; one change each."""
    text = json.dumps(data)
    for path in paths(data):
        found = _at(data, path)
        changes: list[tuple[str, Change]] = [(f"is {value!r:.20}", partial(_put, value=value)) for value in VALUES]
        changes.append(("is missing", lambda parent, key: parent.pop(key)))
        if isinstance(found, list) and found:
            changes.append(("has an entry twice", lambda parent, key: parent[key].append(parent[key][0])))
            changes.append(("lacks its last entry", lambda parent, key: parent[key].pop()))
        if isinstance(found, dict):
            changes.append(("has a field that is not known", lambda parent, key: _put(parent[key], "x", value=1)))
        for words, change in changes:
            spoilt = json.loads(text)
            change(_at(spoilt, path[:-1]), path[-1])
            yield path, words, json.dumps(spoilt)


def _put(parent: Any, key: str | int, *, value: Any) -> None:
    parent[key] = copy.deepcopy(value)


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data
