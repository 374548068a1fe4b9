"""Conditions, reasons and variables, from the contract: each member of an enumeration with the text below it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from reference_pages.markdown_table import table
from stowplan_api import contract

SECTIONS = (
    ("DeploymentCondition", "Conditions of a DiffusionDeployment", "condition"),
    ("DeploymentReason", "Reasons of a DiffusionDeployment", "reason"),
    ("PlacementCondition", "Conditions of a ResidencyPlacement", "condition"),
    ("PlacementReason", "Reasons of a ResidencyPlacement", "reason"),
    ("Env", "Variables of the server container", "variable"),
    ("OperatorEnv", "Variables of the operator", "variable"),
)
INTRODUCTION = """# Conditions and reasons

Made from `stowplan_api/contract.py`. Reasons are stable words for programs; the message beside one is for people. The
gate's own reasons are told in [the operator](../operator.md#the-gate).
"""


def page() -> str:
    """The page as Markdown."""
    classes = {
        node.name: node for node in ast.parse(inspect.getsource(contract)).body if isinstance(node, ast.ClassDef)
    }
    parts = [INTRODUCTION]
    for name, title, heading in SECTIONS:
        parts += [f"## {title}\n", table((heading, "meaning"), list(_members(classes[name])))]
    return "\n".join(parts)


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Value and text of each member; a text is the string that follows it."""
    body = node.body
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            after = body[place + 1] if place + 1 < len(body) else None
            told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = str(after.value.value) if told else ""  # type: ignore[union-attr]
            yield f"`{statement.value.value}`", text.replace("``", "`")
