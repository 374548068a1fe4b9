"""pydantic's JSON schema as a Kubernetes structural schema.

Structural schemas are stricter than JSON schema: no references, no unions (an optional field is one that may be
absent), no `additionalProperties: false` (the API server prunes unknown fields itself, and `kubectl` refuses them).
What cannot be said structurally raises `SchemaError` here, when the CRDs are generated, not when a user installs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
INT64: Final = (-(1 << 63), (1 << 63) - 1)
COPIED: Final = (
    *("type", "format", "enum", "pattern", "required"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
)


class SchemaError(ValueError):
    """A model that a structural schema cannot express."""


def spec_schema(model: type[BaseModel]) -> Schema:
    """The schema of what users write: defaults are kept, so that the API server fills them in."""
    return _Converter(model.model_json_schema(mode="validation"), defaults=True).convert()


def status_schema(model: type[BaseModel]) -> Schema:
    """The schema of what a controller writes whole: computed fields are in, defaults are out."""
    return _Converter(model.model_json_schema(mode="serialization"), defaults=False).convert()


class _Converter:
    """One document: its definitions, and whether defaults are wanted."""

    def __init__(self, document: Schema, *, defaults: bool) -> None:
        self._document = document
        self._definitions: Schema = document.get("$defs", {})
        self._defaults = defaults

    def convert(self) -> Schema:
        return self._node(self._document, ())

    def _node(self, raw: Mapping[str, Any], path: tuple[str, ...]) -> Schema:
        node, path = self._resolved(raw, path)
        where = ".".join(path) or "the root"
        if node.get("type") == "number":
            raise SchemaError(f"{where} is a float; the API carries integers and quantities only")
        if not node.get("type") and not node.get(INT_OR_STRING):
            raise SchemaError(f"{where} has no type; give it one type that Kubernetes knows")
        result: Schema = {}
        if "description" in node:
            result["description"] = _prose(node["description"])
        result |= {name: node[name] for name in COPIED if name in node}
        if "const" in node:
            result["enum"] = [node["const"]]
        if node.get("type") == "integer":
            result["format"] = "int64"
            for name in ("minimum", "maximum"):
                if result.get(name) in INT64:
                    del result[name]
        if self._defaults and node.get("default") is not None:
            result["default"] = _without_nulls(node["default"])
        result |= self._children(node, path)
        result |= {name: value for name, value in node.items() if name.startswith("x-kubernetes-")}
        return result

    def _children(self, node: Schema, path: tuple[str, ...]) -> Schema:
        if node.get(INT_OR_STRING):
            return {"anyOf": node["anyOf"]}
        if node["type"] == "array":
            return {"items": self._node(node["items"], (*path, "[]"))}
        if node["type"] != "object" or node.get("x-kubernetes-preserve-unknown-fields"):
            return {}
        if "properties" in node:
            return {
                "properties": {name: self._node(child, (*path, name)) for name, child in node["properties"].items()}
            }
        return {"additionalProperties": self._node(node["additionalProperties"], (*path, "{}"))}

    def _resolved(self, raw: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """The node with its reference followed and its null removed; what stands beside a reference wins over it."""
        node = dict(raw)
        if "required" in node:
            required = [name for name in node["required"] if not node["properties"][name].get("readOnly")]
            node = {**node, "required": required} if required else {k: v for k, v in node.items() if k != "required"}
        if "anyOf" in node and not node.get(INT_OR_STRING):
            choices = [choice for choice in node.pop("anyOf") if choice.get("type") != "null"]
            if len(choices) != 1:
                raise SchemaError(f"{'.'.join(path)} is a union of {len(choices)} types; Kubernetes has none")
            return self._resolved({**choices[0], **node}, path)
        if "$ref" in node:
            name = node.pop("$ref").removeprefix("#/$defs/")
            marker = f"<{name}>"
            if marker in path:
                raise SchemaError(f"{'.'.join(path)} contains itself; Kubernetes schemas are finite")
            return self._resolved({**self._definitions[name], **node}, (*path, marker))
        return node, path


def _prose(docstring: str) -> str:
    """A docstring as one paragraph of plain text."""
    return re.sub(r"\s+", " ", docstring.replace("``", "`")).strip()


def _without_nulls(value: Any) -> Any:
    """A default as it is written into the CRD. It must be whole: CEL rules run on it before nested defaults do."""
    if isinstance(value, dict):
        return {name: _without_nulls(child) for name, child in value.items() if child is not None}
    return value
