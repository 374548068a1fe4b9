"""docs/threats.md promises a test for each line: what it names is there, and the intruder's are all named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)))


def cases_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_the_page_names_is_there(file: str, test: str) -> None:
    assert any(test in cases_of(path) for path in (ROOT / "tests").rglob(file))


def test_every_test_of_the_intruder_is_on_the_page() -> None:
    assert cases_of(ROOT / "tests" / "cluster" / "test_rights.py") == {
        test for file, test in NAMED if file == "test_rights.py"
    }


def test_every_line_names_what_shows_it() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what |")]
    unproven = [row for row in rows if "::test_" not in row]
    assert len(rows) > 20
    assert [row.split(" | ")[0] for row in unproven] == [
        "| answer requests with anything",
        "| read what its pod mounts",
    ]
