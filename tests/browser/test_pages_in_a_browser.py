"""The pages as a browser shows them: nothing from a network, nothing cut off, light and dark, by keys, and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

NAMES = ("request", "short", "frontier")
WIDTHS = {"phone": 390, "tablet": 820, "laptop": 1280}
WITHIN_MARGINS = 688
"""Pixels of A4's 210 mm between margins of 14 mm."""
TOP_SECTIONS = ("Device memory through the request", "Where the seconds go", "Where the weights live", "Which card",
                "Promised against measured", "How the pod started", "Rollbacks")  # fmt: skip
CUT = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  if (!svg.getClientRects().length) return [];
  const box = svg.viewBox.baseVal;
  return [...svg.querySelectorAll('text')].filter(text => {
    const at = text.getBBox();
    return at.x < -1 || at.y < -1 || at.x + at.width > box.width + 1 || at.y + at.height > box.height + 1;
  }).map(text => text.textContent);
})"""
CONTRAST = """() => {
  const light = colour => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(part => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('h1, h2, p, td, th, a, .tile span, .tile b, li, text')]
    .filter(one => one.getClientRects().length)
    .map(one => light(getComputedStyle(one)[one.tagName === 'text' ? 'fill' : 'color']))
    .map(ink => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05))
    .reduce((least, ratio) => Math.min(least, ratio), 99);
}"""


@contextmanager
def shown(browser: Browser, path: Path, width: int, scheme: Literal["light", "dark"] = "light") -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    complaints: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    yield page
    assert [url for url in asked if url.partition("#")[0] != path.as_uri()] == [], "a page needs nothing but itself"
    assert complaints == []
    context.close()


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_off_at_any_width(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    with shown(browser, pages[name], width) as page:
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, "the page itself never scrolls sideways"
        assert page.evaluate(CUT) == []
        pictures = page.locator("svg:visible").count()
        assert pictures == {"request": 4, "short": 2, "frontier": 2}[name]


@pytest.mark.parametrize("name", NAMES)
def test_light_and_dark_are_both_readable(browser: Browser, pages: dict[str, Path], name: str) -> None:
    papers = []
    schemes: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
    for scheme in schemes:
        with shown(browser, pages[name], 1000, scheme) as page:
            papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert page.evaluate(CONTRAST) >= 4.5, "WCAG AA, small text included"
    assert papers == ["rgb(255, 255, 255)", "rgb(18, 23, 31)"]


def test_all_of_it_is_reached_by_keys(browser: Browser, pages: dict[str, Path]) -> None:
    with shown(browser, pages["request"], 390) as page:
        for title in TOP_SECTIONS:
            assert page.get_by_role("heading", name=title, exact=True).count() == 1
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == TOP_SECTIONS[0]
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#device-memory-through-the-request"
        top: float = page.evaluate("document.querySelector('h2').getBoundingClientRect().top")
        assert -1 <= top <= 60, "the link leads to its heading"
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        regions = page.locator(".wide").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        assert regions and set(regions) <= reached


def test_what_is_wider_than_a_phone_moves_sideways_by_keys(browser: Browser, pages: dict[str, Path]) -> None:
    with shown(browser, pages["request"], 390) as page:
        region = page.get_by_role("region", name="Stage by stage, ")
        region.focus()
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("document.activeElement.scrollLeft > 0")


@pytest.mark.parametrize("name", NAMES)
def test_on_paper_it_is_light_whole_and_without_links(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with shown(browser, pages[name], 794, "dark") as page:
        page.emulate_media(media="print", color_scheme="light")
        found: dict[str, Any] = page.evaluate(
            "() => ({paper: getComputedStyle(document.body).backgroundColor,"
            " nav: [...document.querySelectorAll('nav')].filter(one => one.getClientRects().length).length})"
        )
        assert found["paper"] == "rgb(255, 255, 255)" and found["nav"] == 0
        page.set_viewport_size({"width": WITHIN_MARGINS, "height": 1000})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= WITHIN_MARGINS, "nothing runs off the paper"
        assert page.pdf(format="A4").startswith(b"%PDF-")


def test_a_pointer_that_rests_on_a_piece_is_told_what_it_is(browser: Browser, pages: dict[str, Path]) -> None:
    with shown(browser, pages["request"], 1280) as page:
        tips = page.locator("svg:visible rect > title").evaluate_all("all => all.map(one => one.textContent)")
        assert any("there for good" in tip for tip in tips)
        assert "Probe: 15.8 s" in tips, tips
