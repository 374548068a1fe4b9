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
    texts = [*node.body[1:], None]
    for statement, after in zip(node.body, texts, strict=True):
        if isinstance(statement, ast.Assign):
            yield f"`{ast.literal_eval(statement.value)}`", _text(after).replace("``", "`")


def _text(statement: ast.stmt | None) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
