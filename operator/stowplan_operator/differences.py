"""Whether server-side applying a manifest would change an object: if not, it is not sent.

Two questions, both answered from the object itself, so that a restarted operator knows as much as before: does the
object hold every value of the manifest, and do we own a field there (by ``managedFields``) that the manifest lacks?
"""

from __future__ import annotations

import json
from typing import Any, Final

from stowplan_operator.kinds import Json

_LIST_KEYS: Final = ("name", "mountPath", "containerPort", "port", "conditionType", "type", "uid", "ip", "devicePath")
"""What names an element of a list of mappings in the kinds we write, in the order they are tried."""
_SENT_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "managedFields")


def would_change(manifest: Json, existing: Json | None, manager: str) -> bool:
    """True when the object is missing, differs from the manifest, or has a field of ours that the manifest lacks."""
    if existing is None:
        return True
    head = {key: value for key, value in manifest["metadata"].items() if key not in _SENT_IDENTITY}
    # Items of a list carry neither apiVersion nor kind.
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    wanted = {**body, "metadata": head}
    if not holds(existing, wanted):
        return True
    owned = [
        _tree(entry.get("fieldsV1") or {})
        for entry in existing["metadata"].get("managedFields") or ()
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]
    return not owned or not all(_still_wanted(fields, wanted) for fields in owned)


def _tree(fields: Json | str) -> Json:
    """A fieldsV1 tree, which trimming keeps as text."""
    tree: Json = json.loads(fields) if isinstance(fields, str) else fields
    return tree


def holds(existing: Any, wanted: Any) -> bool:
    """Whether every value of ``wanted`` is in ``existing``; more than that may be there (defaults, other managers)."""
    if isinstance(wanted, dict):
        return isinstance(existing, dict) and all(
            key in existing and holds(existing[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(existing, list) and _list_holds(existing, wanted)
    # The server normalises 8 and "8" alike where it takes either (quantities, ports).
    return bool(existing == wanted) or (not isinstance(wanted, bool) and str(existing) == str(wanted))


def _list_holds(existing: list[Any], wanted: list[Any]) -> bool:
    key = _list_key(wanted)
    if key is None:
        return len(existing) == len(wanted) and all(map(holds, existing, wanted))
    return all(
        any(isinstance(there, dict) and there.get(key) == element[key] and holds(there, element) for there in existing)
        for element in wanted
    )


def _list_key(elements: list[Any]) -> str | None:
    if not elements or not all(isinstance(element, dict) for element in elements):
        return None
    return next((key for key in _LIST_KEYS if all(key in element for element in elements)), None)


def _still_wanted(fields: Json, wanted: Any) -> bool:
    """Whether each path of a fieldsV1 tree is in the manifest (structured-merge-diff's syntax: f:, k:, v:)."""
    for path, below in fields.items():
        mark, _, text = path.partition(":")
        if path == ".":
            continue
        if mark == "f":
            if not isinstance(wanted, dict) or text not in wanted:
                return False
            found = [wanted[text]]
        elif not isinstance(wanted, list):
            return False
        elif mark == "k":
            keys = json.loads(text)
            found = [element for element in wanted if isinstance(element, dict) and _has_keys(element, keys)]
        else:
            found = [element for element in wanted if element == json.loads(text)]
        if not found or not any(_still_wanted(below, element) for element in found):
            return False
    return True


def _has_keys(element: Json, keys: Json) -> bool:
    """A key that the manifest leaves to its default (a port's protocol) matches."""
    return all(element.get(name, value) == value for name, value in keys.items())
