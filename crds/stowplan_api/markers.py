"""What a model says to the API server beyond its types: list semantics and CEL rules.

The markers sit beside the field or class they speak of and travel inside pydantic's JSON schema; `schema` copies them
into the CRD. A rule's message is what a user reads after the field's path, so it says what is allowed, in one sentence.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic.types import JsonValue

Extra = dict[str, JsonValue]

PRESERVE_UNKNOWN: Final[Extra] = {"x-kubernetes-preserve-unknown-fields": True}
"""An object that the API server stores as it is."""
SET: Final[Extra] = {"x-kubernetes-list-type": "set"}
"""A list whose entries differ; the API server refuses a repeated one."""
DATE_TIME: Final[Extra] = {"format": "date-time"}
"""RFC 3339, checked by the API server."""


def keyed_by(key: str) -> Extra:
    """A list whose entries are told apart by one field; duplicates are refused and server-side apply merges by it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def rules(*pairs: tuple[str, str]) -> Extra:
    """CEL rules as (expression, message).

    Every list that an expression walks must be bounded: the API server refuses a CRD whose rules could cost too much.
    """
    checks: list[JsonValue] = [{"rule": expression, "message": message} for expression, message in pairs]
    return {"x-kubernetes-validations": checks}


def merged(*extras: Extra) -> dict[str, Any]:
    """Several markers as one ``json_schema_extra``."""
    return {name: value for extra in extras for name, value in extra.items()}
