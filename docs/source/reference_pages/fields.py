"""Fields of the two kinds, from the models that the CustomResourceDefinitions are made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reference_pages.markdown_table import table
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, DiffusionDeploymentStatus
from stowplan_api.residency_placement import ResidencyPlacementSpec, ResidencyPlacementStatus
from stowplan_api.schema import spec_schema, status_schema

Schema = dict[str, Any]
INTRODUCTION = """# Fields

Made from `crds/stowplan_api`, as the CustomResourceDefinitions are; `kubectl explain dd.spec` says the same. Quantities
are written as Kubernetes writes them (`24Gi`); bytes and milliseconds of a status are integers.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    for title, schema in (
        ("DiffusionDeployment: spec", spec_schema(DiffusionDeploymentSpec)),
        ("DiffusionDeployment: status", status_schema(DiffusionDeploymentStatus)),
        ("ResidencyPlacement: spec", spec_schema(ResidencyPlacementSpec)),
        ("ResidencyPlacement: status", status_schema(ResidencyPlacementStatus)),
    ):
        rows = list(_rows(schema, ""))
        parts += [f"## {title}\n", table(("field", "type", "default", "meaning"), rows)]
        if rules := list(_rules(schema)):
            parts += ["\nRefused by the API server:\n", *(f"- {message}" for message in dict.fromkeys(rules)), ""]
    return "\n".join(parts) + "\n"


def _rows(node: Schema, path: str) -> Iterator[tuple[str, ...]]:
    required = set(node.get("required", ()))
    for name, child in node.get("properties", {}).items():
        here = f"{path}{name}"
        word = " (required)" if name in required else ""
        yield f"`{here}`{word}", _type(child), _default(child), child.get("description", "")
        inner = child.get("items", child)
        yield from _rows(inner, f"{here}{'[]' if 'items' in child else ''}.")


def _type(node: Schema) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in node:
        return ", ".join(f"`{choice}`" for choice in node["enum"])
    if "items" in node:
        most = f", at most {node['maxItems']}" if "maxItems" in node else ""
        return f"list of {node['items'].get('type', 'object')}s{most}"
    low, high = node.get("minimum"), node.get("maximum")
    limits = {(True, True): f", {low} to {high}", (True, False): f", from {low}", (False, True): f", to {high}"}
    return str(node.get("type", "object")) + limits.get((low is not None, high is not None), "")


def _default(node: Schema) -> str:
    default = node.get("default")
    return "" if default is None or isinstance(default, dict | list) else f"`{json.dumps(default)}`"


def _rules(node: Schema) -> Iterator[str]:
    for rule in node.get("x-kubernetes-validations", ()):
        if "message" in rule:
            yield str(rule["message"])
    for child in (*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])):
        yield from _rules(child)
