"""What a reader copies from a page works: commands and their options exist, and manifests are accepted."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from stowplan_agent.cli import app
from stowplan_api.objects import DiffusionDeployment

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]


def blocks(page: str) -> Iterator[str]:
    """Code of a page: what stands between fences, and what is indented after an empty line or a list's words."""
    text = page.expandtabs()
    yield from (
        textwrap.dedent(found) for found in re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    )
    unfenced = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for found in re.findall(r"(?:^(?: {4,}\S.*|\s*)\n)+", unfenced, re.MULTILINE):
        yield textwrap.dedent(found)


def told(page: Path) -> list[list[str]]:
    """Every ``stowplan ...`` in the code of a page, without its remark, as words."""
    code = "\n".join(blocks(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    lines = re.findall(r"^ *(?:\$ |kubectl )?stowplan +([a-z].*)$", code, re.MULTILINE)
    return [line.partition(" #")[0].split() for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for name, *words in told(page):
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known | {"--help"}, f"stowplan {name} has no {used - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_manifests_are_accepted(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if re.search(r"^kind: DiffusionDeployment$", block, re.MULTILINE):
            DiffusionDeployment.model_validate(yaml.safe_load(block))


def test_the_pages_tell_of_every_command() -> None:
    assert {name for page in PAGES for name, *_ in told(page)} >= COMMANDS.keys()


def test_a_page_is_in_the_contents_once() -> None:
    """mkdocs finds a page that is missing there, and not one that is there twice."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"\S+\.md$", text[text.index("\nnav:") :], re.MULTILINE)
    assert len(named) > 20 and len(named) == len(set(named))
