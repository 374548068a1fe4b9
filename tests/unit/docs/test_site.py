"""The documentation builds with every link checked, asks no other host, and its reference has all that the code has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prometheus_client import CollectorRegistry

from stowplan_agent.cli import app
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_api.contract import DeploymentReason, OperatorEnv, PlacementCondition, PlacementReason
from stowplan_api.residency_placement import Phase
from stowplan_operator.metrics import Metrics

ROOT = Path(__file__).parents[3]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a link or an anchor that leads nowhere ends the build."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class Sources(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        for name in {"script": "src", "img": "src", "link": "href", "iframe": "src"}.get(tag, "").split():
            self.found.append(named.get(name) or "")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_no_page_asks_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        sources = Sources()
        sources.feed(text_of(page))
        assert [url for url in sources.found if re.match(r"(https?:)?//", url)] == [], page.name
    styles = "".join(text_of(path) for path in site.rglob("*.css"))
    assert not re.findall(r"url\([\"']?https?:|@import\s+[\"']?https?:", styles)


def test_the_reference_has_every_metric(site: Path) -> None:
    page = text_of(site / "reference" / "metrics.html")
    for registry in (AgentMetrics(CollectorRegistry()).registry, Metrics().registry):
        for family in registry.collect():
            if family.name.startswith("stowplan"):
                assert family.name in page and family.documentation[:20] in page, family.name


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    page = text_of(site / "reference" / "commands.html")
    for command in app.registered_commands:
        assert command.callback is not None
        assert f'id="stowplan-{command.callback.__name__}"' in page
    for option in ("--device-memory", "--all-namespaces", "--install-completion", "--workload"):
        assert option in page


def test_the_reference_has_every_reason_with_its_meaning(site: Path) -> None:
    page = text_of(site / "reference" / "conditions.html")
    for member in (*PlacementCondition, *PlacementReason, *DeploymentReason, *OperatorEnv):
        assert f"<code>{member}</code>" in page, member
    assert "not bit-equal to the reference" in page


def test_the_reference_has_every_field(site: Path) -> None:
    page = text_of(site / "reference" / "fields.html")
    for path in ("spec", "workload.shapes[].frames", "residency.validation.maxSlowdownPercent", "validation.bitEqual",
                 "ranks[].capacityBytes", "lastRollback.from"):  # fmt: skip
        assert path in page, path
    assert all(phase in page for phase in get_args(Phase))
    assert "immutable" in page, "rules have their messages"
    assert "grafanaDashboard" in text_of(site / "reference" / "values.html")


def test_every_alert_leads_to_a_section(site: Path) -> None:
    rules = yaml.safe_load(text_of(ROOT / "charts" / "stowplan" / "rules" / "alerts.yaml"))
    page = text_of(site / "alerts.html")
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert f'id="{rule["annotations"]["runbook_url"].partition("#")[2]}"' in page


@pytest.mark.parametrize("name", OUTSIDE)
def test_links_of_pages_outside_the_site_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text_of(page)):
        assert (page.parent / target).exists(), f"{name} links to {target}"


def test_pictures_are_small_and_have_words_for_those_who_do_not_see_them() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert pictures and all(picture.stat().st_size <= 80_000 for picture in pictures)
    for page in (ROOT / "docs").rglob("*.md"):
        assert not re.findall(r"!\[\s*\]\(", text_of(page)), page.name
